#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A private Slurm of N one-host nodes below DIR: slurm_up.sh DIR N [FIRST_PORT]. Use it with SLURM_CONF=DIR/slurm.conf; end it by the
# process ids in DIR/run. Needs root, slurm-wlm and munge; touches no Slurm that is installed.
set -euo pipefail
# shellcheck source=tests/jobs/slurm_common.sh
source "$(dirname "${BASH_SOURCE[0]}")/slurm_common.sh"
dir=$(realpath "$1") nodes=$2 port=${3:-17000} host=$(hostname -s)
for i in $(seq "$nodes"); do mkdir -p "$dir/tmp.n$i" "$dir/spool.n$i"; done
start_munge "$dir"
{
  print_common_conf "$dir"
  printf '%s\n' "SlurmctldHost=$host" "SlurmctldPort=$port"
  for i in $(seq "$nodes"); do
    echo "NodeName=n$i NodeHostname=$host Port=$((port + i)) CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000"
  done
  echo "PartitionName=main Nodes=n[1-$nodes] Default=YES MaxTime=60 State=UP"
} >"$dir/slurm.conf"
export SLURM_CONF="$dir/slurm.conf"
slurmctld -f "$SLURM_CONF"
for i in $(seq "$nodes"); do slurmd -f "$SLURM_CONF" -N "n$i"; done
wait_until_idle "$dir" sinfo
