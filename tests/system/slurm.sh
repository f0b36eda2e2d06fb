#!/bin/sh
# Run a command beside Debian's Slurm with two nodes, both on this machine.
# Usage: unshare --mount slurm.sh ROOT STATE COMMAND...
# ROOT: where its packages are unpacked. STATE: an empty directory. MAX_ARRAY_SIZE: its MaxArraySize.
# NO_CGROUPS: not empty for a Slurm that can do without control groups, as 24.11 can.
set -e
root=$1 state=$2
shift 2
mkdir -p "$state/spool/n1" "$state/spool/n2" "$state/ctld"
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$root/usr:/usr" /usr
[ -n "${NO_CGROUPS:-}" ] || mount -t tmpfs tmpfs /sys/fs/cgroup # they are not Slurm's own
cat >"$state/slurm.conf" <<C
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
PluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=60
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd.%n.pid
StateSaveLocation=$state/ctld
SlurmdSpoolDir=$state/spool/%n
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd.%n.log
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=n[1-2] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[16821-16822] CPUs=$(nproc) RealMemory=1000
MaxJobCount=200000
MaxArraySize=${MAX_ARRAY_SIZE:-1001}
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
C
if [ -n "${NO_CGROUPS:-}" ]; then
  echo CgroupPlugin=disabled
else
  printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n'
fi >"$state/cgroup.conf"
export SLURM_CONF="$state/slurm.conf"
/usr/sbin/slurmctld -D 2>/dev/null & controller=$!
/usr/sbin/slurmd -D -N n1 2>/dev/null & first=$!
/usr/sbin/slurmd -D -N n2 2>/dev/null & second=$!
trap 'kill $first $second $controller 2>/dev/null; wait' EXIT
for _ in $(seq 300); do
  [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ] && break
  sleep 0.1
done
"$@"
