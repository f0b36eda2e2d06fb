#!/bin/sh
# Run a command beside Debian's HTCondor with two nodes, both on this machine. Its daemons, its jobs and the command
# belong to a user without privileges: HTCondor takes no jobs of root.
# Usage: unshare --mount htcondor.sh ROOT STATE USER COMMAND...
# ROOT: where its packages are unpacked. STATE: a directory of the user.
set -e
root=$1 state=$2 as="setpriv --reuid $3 --regid nogroup --clear-groups -- env"
shift 3
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$root/usr:/usr" /usr
$as mkdir -p "$state/log" "$state/lock" "$state/spool" "$state/a" "$state/b"
cat >"$state/condor_config" <<C
COLLECTOR_HOST = 127.0.0.1:19618
NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = False
USE_SHARED_PORT = False
LOCAL_DIR = $state
LOG = $state/log
LOCK = $state/lock
SPOOL = $state/spool
RUN = $state
RELEASE_DIR = /usr
LIBEXEC = /usr/libexec/condor
UID_DOMAIN = test
FILESYSTEM_DOMAIN = test
SEC_DEFAULT_AUTHENTICATION_METHODS = FS, CLAIMTOBE
SEC_CLIENT_AUTHENTICATION_METHODS = FS, CLAIMTOBE
SEC_DEFAULT_ENCRYPTION = OPTIONAL
SEC_DEFAULT_INTEGRITY = OPTIONAL
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_ADMINISTRATOR = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
DAEMON_LIST = MASTER, COLLECTOR, NEGOTIATOR, SCHEDD, STARTD_A, STARTD_B
STARTD_A = \$(STARTD)
STARTD_B = \$(STARTD)
STARTD_A_ARGS = -f -local-name a
STARTD_B_ARGS = -f -local-name b
a.STARTD_NAME = a
b.STARTD_NAME = b
a.EXECUTE = $state/a
b.EXECUTE = $state/b
a.STARTD_LOG = $state/log/StartLog.a
b.STARTD_LOG = $state/log/StartLog.b
a.STARTD_ADDRESS_FILE = $state/log/startd.a
b.STARTD_ADDRESS_FILE = $state/log/startd.b
NUM_CPUS = 4
SLOT_TYPE_1 = 100%
NUM_SLOTS_TYPE_1 = 1
SLOT_TYPE_1_PARTITIONABLE = False
START = True
SUSPEND = False
PREEMPT = False
KILL = False
# They would measure the node by themselves, and a claim that is not used would keep it.
RunBenchmarks = False
STARTD_DETECT_GPUS = False
UNUSED_CLAIM_TIMEOUT = 2
NEGOTIATOR_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 1
NEGOTIATOR_MIN_INTERVAL = 1
SCHEDD_INTERVAL = 2
DAGMAN_USER_LOG_SCAN_INTERVAL = 1
USE_PROCD = False
BASE_CGROUP =
C
export CONDOR_CONFIG="$state/condor_config"
$as /usr/sbin/condor_master -f >"$state/master.out" 2>&1 & master=$!
trap 'kill $master 2>/dev/null; wait' EXIT
for _ in $(seq 300); do
  [ "$($as condor_status -af Name 2>/dev/null | wc -l)" = 2 ] && $as condor_q >/dev/null 2>&1 && break
  sleep 0.1
done
$as "$@"
