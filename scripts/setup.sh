#!/bin/sh
# Installs what `make quick` (argument: run) or `make test` (argument: test) needs, and skips what is installed already.
# As root on Debian or Ubuntu it installs packages; otherwise it prints one command that installs them.
set -eu
cd "$(dirname "$0")/.."
need=${1:-run}

# The family of this system: debian, fedora (also RHEL and its relatives), suse or arch.
system=""
if [ -r "${NEARMETAL_OS_RELEASE:-/etc/os-release}" ]; then
    # shellcheck disable=SC1090 # the variables that it sets are read in the next line
    . "${NEARMETAL_OS_RELEASE:-/etc/os-release}"
    for like in ${ID:-} ${ID_LIKE:-}; do
        case $like in
        debian | ubuntu) system=debian ;;
        fedora | rhel | centos) system=fedora ;;
        suse | opensuse*) system=suse ;;
        arch) system=arch ;;
        *) continue ;;
        esac
        break
    done
fi

# Succeeds if a program is missing. Packages are checked only on Debian.
programs_missing() {
    for program in gcc make cmake mpicc mpirun ip unshare; do
        command -v "$program" >/dev/null || return 0
    done
    ! "$python" -c 'import ensurepip, venv' 2>/dev/null
}

python=python3
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=python3.11 # the default of RHEL is older, and this one can be installed beside it
fi

common="gcc make cmake util-linux"
case $system in
debian) install="" ;;
fedora) install="sudo dnf install $common openmpi-devel python3.11 iproute procps-ng; then: module load mpi/openmpi-x86_64" ;;
suse) install="sudo zypper install $common openmpi4-devel python311 iproute2 procps; then: mpi-selector --set openmpi4" ;;
arch) install="sudo pacman -S --needed $common openmpi python iproute2 procps-ng" ;;
*) install="(by this system's package manager) $common, Open MPI with mpicc, Python 3.11, iproute2, procps" ;;
esac
if [ -n "$install" ] && programs_missing; then
    echo "missing packages; install them with:  $install" >&2
    exit 3
fi
if [ -n "$install" ] && [ "$need" = test ]; then
    echo "Only on Debian are the programs installed that all tests need; others fail here." >&2
fi

packages="gcc libc6-dev make cmake libopenmpi-dev openmpi-bin python3 python3-venv iproute2 procps util-linux"
if [ "$need" = test ]; then
    packages="$packages clang-format chromium git gfortran mpich libmpich-dev openssh-server openssh-client"
    packages="$packages ethtool openvswitch-switch"
    packages="$packages bonnie++ fio lammps ncbi-blast+"
    packages="$packages mmdebstrap squashfs-tools erofs-utils skopeo umoci"
    packages="$packages qemu-system-x86 qemu-system-common qemu-utils e2fsprogs"
    packages="$packages libvirt-clients libvirt-daemon libvirt-daemon-driver-qemu"
    packages="$packages bubblewrap charliecloud crun docker.io lxc podman runc slirp4netns systemd-container uidmap"
    packages="$packages hpcc libblas3 libopenblas0-pthread"
fi

missing=""
[ "$system" = debian ] || packages=""
for p in $packages; do
    dpkg-query -W -f='${Status}\n' "$p" 2>/dev/null | grep -q '^install ok' || missing="$missing $p"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing by apt-get:$missing"
        export DEBIAN_FRONTEND=noninteractive
        policy=/usr/sbin/policy-rc.d # keeps packages from starting daemons: tests start their own
        if [ ! -e "$policy" ]; then
            trap 'rm -f "$policy"' EXIT
            printf '#!/bin/sh\nexit 101\n' >"$policy"
            chmod 755 "$policy"
        fi
        apt-get update -qq
        # shellcheck disable=SC2086 # the list is meant to split into words
        apt-get install -y -qq --no-install-recommends $missing >build-packages.log 2>&1 || {
            tail -n 5 build-packages.log >&2
            exit 3
        }
        rm -f build-packages.log
    else
        echo "missing packages; install them with:  sudo apt-get install$missing" >&2
        exit 3
    fi
fi

stamp=".venv/.$need-$(cat pyproject.toml constraints.txt | cksum | tr ' ' '-')"
if [ ! -e "$stamp" ]; then
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    uv=$(command -v uv || echo .venv/bin/uv)
    [ -x "$uv" ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check uv
    group=""
    [ "$need" = test ] && group="--group dev"
    # Without --compile-bytecode, imports would compile again and again where bytecode cannot be stored.
    # shellcheck disable=SC2086
    VIRTUAL_ENV=.venv "$uv" pip install --quiet --compile-bytecode --constraints constraints.txt \
        --editable . $group
    touch "$stamp"
fi

# The ocean model that tests run in a virtual environment of its own, since it needs other versions of common packages.
veros=1.7.0
if [ "$need" = test ] && [ ! -e ".venv-veros/.$veros" ]; then
    uv=$(command -v uv || echo .venv/bin/uv)
    "$uv" venv --quiet --clear --python "$(command -v python3)" .venv-veros
    VIRTUAL_ENV=.venv-veros "$uv" pip install --quiet --compile-bytecode "veros==$veros"
    touch ".venv-veros/.$veros"
fi

# Debian 12 has no apptainer, so the contract tests use that of a newer release, or report that they could not.
if [ "$need" = test ] && [ "$(id -u)" = 0 ] && ! command -v apptainer >/dev/null; then
    .venv/bin/python -m tests.contract.apptainer_program >/dev/null ||
        echo "the tests go without apptainer" >&2
fi
