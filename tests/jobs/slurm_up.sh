#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A private Slurm of N one-host nodes below DIR: slurm_up.sh DIR N [FIRST_PORT]. Use it with SLURM_CONF=DIR/slurm.conf; end it by the
# process ids in DIR/run. Needs root, slurm-wlm and munge; touches no Slurm that is installed.
set -euo pipefail
dir=$(realpath "$1") nodes=$2 port=${3:-17000} host=$(hostname -s)
mkdir -p "$dir"/{state,log,run}
for i in $(seq "$nodes"); do mkdir -p "$dir/tmp.n$i" "$dir/spool.n$i"; done
head -c 128 /dev/urandom >"$dir/munge.key"
chmod 400 "$dir/munge.key"
munged --force --key-file="$dir/munge.key" --socket="$dir/run/munge.sock" --pid-file="$dir/run/munged.pid" \
  --log-file="$dir/log/munged.log" --seed-file="$dir/run/seed"
{
  # cred_expire: the wait before a requeued job may start again.
  printf '%s\n' ClusterName=bathys "SlurmctldHost=$host" "SlurmctldPort=$port" "AuthInfo=socket=$dir/run/munge.sock,cred_expire=5" \
    SlurmUser=root "StateSaveLocation=$dir/state" "SlurmdSpoolDir=$dir/spool.%n" "TmpFS=$dir/tmp.%n" \
    "SlurmctldPidFile=$dir/run/ctld.pid" "SlurmdPidFile=$dir/run/slurmd.%n.pid" "SlurmctldLogFile=$dir/log/ctld.log" \
    "SlurmdLogFile=$dir/log/slurmd.%n.log" ProctrackType=proctrack/linuxproc SelectType=select/cons_tres SelectTypeParameters=CR_Core \
    SchedulerParameters=sched_interval=1,sched_min_interval=100000,batch_sched_delay=0,bf_interval=1 ReturnToService=2 KillWait=3 \
    SlurmdTimeout=10 SlurmdParameters=config_overrides
  for i in $(seq "$nodes"); do
    echo "NodeName=n$i NodeHostname=$host Port=$((port + i)) CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000"
  done
  echo "PartitionName=main Nodes=n[1-$nodes] Default=YES MaxTime=60 State=UP"
} >"$dir/slurm.conf"
export SLURM_CONF="$dir/slurm.conf"
slurmctld -f "$SLURM_CONF"
for i in $(seq "$nodes"); do slurmd -f "$SLURM_CONF" -N "n$i"; done
for _ in $(seq 100); do
  [ "$(sinfo -h -o %T | sort -u)" = idle ] && exit 0
  sleep 0.1
done
echo "slurm_up: the nodes did not become idle within 10 s; logs are in $dir/log" >&2
exit 1
