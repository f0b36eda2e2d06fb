#!/bin/sh
# xl without a hypervisor. A domain is a file in $XL_DOMAINS that holds the letters of its state. $XL_FAULT names what
# goes wrong. All that these commands print, xl prints too. Several of these run at the same time, so a state is
# replaced as a whole, and a domain may go while it is listed.
set -u
cd "$XL_DOMAINS" || exit 1

say() { echo "$*" >&2; }
fault() { [ "${XL_FAULT:-}" = "$1" ]; }
become() { echo "$2" >"../state.$$" && mv "../state.$$" "$1"; }
name_of() { sed -n 's/^name = "\(.*\)"$/\1/p' "$1"; }

[ "$1" = -vvv ] && shift
command=$1
shift
echo "$command $*" >>../calls
case $command in
info)
    echo "xen_major : 4"
    echo "xen_minor : 17"
    echo "nr_cpus : 2"
    echo "free_memory : ${XL_FREE:-1024}"
    echo "xen_scheduler : credit2"
    ;;
list)
    echo "Name ID Mem VCPUs State Time(s)"
    for domain in ${1:-*}; do
        state=$(cat "$domain" 2>/dev/null) && echo "$domain 1 128 1 $state 0.1"
    done
    : # whether or not there is a last one
    ;;
destroy)
    rm -f "$1"
    ;;
vcpu-pin) ;;
vcpu-list)
    echo "$1 1 0 0 -b- 0.1 all / all"
    ;;
unpause)
    fault unpause && [ "$1" != "${XL_SOURCE:-}" ] && say "libxl: error: no such domain" && exit 1
    become "$1" -b----
    ;;
save)
    case $1 in -?) kind=$1 && shift ;; *) kind= ;; esac
    set -- "$kind" "$@"
    fault suspend && say "libxl: error: libxl_dom_suspend.c:1:guest did not suspend, timed out" && exit 1
    cp "${4:-/dev/null}" "../config.$$" && fault late && sleep 0.5
    become "$2" ---s--
    say "libxl: debug: libxl_dom_suspend.c:1:domain_suspend:Domain 1:guest has suspended"
    say "xc: progress: Frames: 1024/1048575    0%"
    if ! { cat "../config.$$" && head -c 300000 /dev/zero; } >"$3"; then
        say "libxl: error: libxl_stream_write.c:1: write error"
        say "Failed to save domain, resuming domain"
        become "$2" -b----
        exit 1
    fi
    say "xc: progress: Frames: 1048575/1048575  100%"
    case $1 in -p) become "$2" --p--- ;; -c) become "$2" -b---- ;; *) rm "$2" ;; esac
    ;;
restore)
    [ "$1" = -p ] || exit 2
    fault slow && exec sleep 30
    cat "$2" >"../stream.$$" # guests of one job are restored at the same time
    name=$(name_of "../stream.$$")
    mv "../stream.$$" ../stream
    [ ! -f "$2" ] || stat -c %a "$2" >../mode
    fault restore && say "libxl: error: libxl_create.c:1:Domain 2:unable to add vif devices" && exit 3
    become "$name" --p---
    ;;
migrate)
    if [ "$3" != -C ]; then
        say "libxl: debug: libxl_dom_suspend.c:1:domain_suspend:Domain 1:guest has suspended"
        become "$3" ---s--
        if ! sh -c "exec $2 $4 xl migrate-receive" </dev/null; then
            say "Migration failed, resuming at sender."
            become "$3" -b----
            exit 1
        fi
        mv "$3" "$3--migratedaway"
        fault handshake && say "libxl: error: reading success/failure report message" && exit 1
        rm "$3--migratedaway"
        exit 0
    fi
    [ "$1 $2 $3" = "-s  -C" ] || exit 2
    config=$4 name=$5 receiver=$6
    cp "$config" "../config.$$" && config="../config.$$" && fault late && sleep 0.5
    fault logdirty && say "xc: error: Failed to enable logdirty: 22,0,22: Internal error" && exit 1
    say "libxl: debug: libxl_dom_suspend.c:1:domain_suspend:Domain 1:guest has suspended"
    become "$name" ---s--
    if ! sh -c "$receiver" <"$config"; then
        say "Migration failed, resuming at sender."
        become "$name" -b----
        exit 1
    fi
    say "migration sender: Target has acknowledged transfer."
    mv "$name" "$name--migratedaway"
    say "migration sender: Giving target permission to start."
    fault handshake && say "libxl: error: reading success/failure report message" && exit 1
    mv "$(name_of "$config")--incoming" "$(name_of "$config")"
    become "$(name_of "$config")" -b----
    say "migration target: Domain started successsfully."
    rm "$name--migratedaway"
    ;;
migrate-receive)
    fault slow && exec sleep 30
    cat >../stream
    become "$(name_of ../stream)--incoming" --p---
    fault receive && say "libxl: error: libxl_create.c:1:Domain 2:unable to add vif devices" && exit 1
    exit 0
    ;;
*)
    say "xl: not in this script: $command"
    exit 2
    ;;
esac
