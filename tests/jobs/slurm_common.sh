#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What every private Slurm of the tests has, whatever its hosts are; sourced.

# start_munge DIR: the daemon that its parts trust each other by.
start_munge() {
  local dir=$1
  mkdir -p "$dir"/{state,log,run}
  head -c 128 /dev/urandom >"$dir/munge.key"
  chmod 400 "$dir/munge.key"
  munged --force --key-file="$dir/munge.key" --socket="$dir/run/munge.sock" --pid-file="$dir/run/munged.pid" \
    --log-file="$dir/log/munged.log" --seed-file="$dir/run/seed"
}

# print_common_conf DIR: the lines of slurm.conf but for hosts, nodes and partitions.
print_common_conf() {
  local dir=$1
  # cred_expire: the wait before a requeued job may start again.
  printf '%s\n' ClusterName=bathys "AuthInfo=socket=$dir/run/munge.sock,cred_expire=5" \
    SlurmUser=root "StateSaveLocation=$dir/state" "SlurmdSpoolDir=$dir/spool.%n" "TmpFS=$dir/tmp.%n" \
    "SlurmctldPidFile=$dir/run/ctld.pid" "SlurmdPidFile=$dir/run/slurmd.%n.pid" "SlurmctldLogFile=$dir/log/ctld.log" \
    "SlurmdLogFile=$dir/log/slurmd.%n.log" ProctrackType=proctrack/linuxproc SelectType=select/cons_tres SelectTypeParameters=CR_Core \
    SchedulerParameters=sched_interval=1,sched_min_interval=100000,batch_sched_delay=0,bf_interval=1 ReturnToService=2 KillWait=3 \
    SlurmdTimeout=10 SlurmdParameters=config_overrides
}

# wait_until_idle DIR SINFO...: until the command that asks for the nodes' states says that all are idle; 1 after 10 s.
wait_until_idle() {
  local dir=$1
  shift
  for _ in $(seq 100); do
    [ "$("$@" -h -o %T | sort -u)" = idle ] && return 0
    sleep 0.1
  done
  echo "the nodes did not become idle within 10 s; logs are in $dir/log" >&2
  return 1
}
