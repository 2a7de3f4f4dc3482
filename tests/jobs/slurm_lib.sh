# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the tests of the job scripts share: a private Slurm for the time of the test, checks, waiting. Source it, then call
# slurm_start. A test leaves with 77 where there is no Slurm.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
failures=0

slurm_down() {
  local pidfile
  for pidfile in "$work"/slurm/run/*.pid; do
    [ -f "$pidfile" ] && kill "$(cat "$pidfile")" 2>/dev/null
  done
  sleep 0.5
  rm -rf "$work"
}

# slurm_start NODES FIRST_PORT: Slurm below $work; job scripts run $work/program unless told otherwise.
slurm_start() {
  local tool
  export PATH=$PATH:/usr/sbin
  for tool in slurmctld slurmd munged sbatch; do
    command -v "$tool" >/dev/null || { echo "no $tool: skipped"; exit 77; }
  done
  [ "$(id -u)" -eq 0 ] || { echo "a private Slurm needs root: skipped"; exit 77; }
  work=$(mktemp -d)
  trap slurm_down EXIT
  mkdir "$work/slurm"
  bash "$root/tests/jobs/slurm_up.sh" "$work/slurm" "$1" "$2" || exit 1
  export SLURM_CONF=$work/slurm/slurm.conf BATHYS_ROOT=$root BATHYS_PROGRAM=$work/program
}

expect() { # WORDS FOUND EXPECTED
  if [ "$2" = "$3" ]; then echo "ok: $1 ($SECONDS s)"; else echo "FAILED: $1: found '$2', expected '$3'"; failures=$((failures + 1)); fi
}
field() { scontrol -o show job "$1" | head -n 1 | grep -o " $2=[^ ]*" | cut -d= -f2; }
finish() { # ID: waits for the job's end (two minutes)
  for _ in $(seq 600); do
    case $(field "$1" JobState) in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return 0 ;; esac
    sleep 0.2
  done
  echo "job $1 did not end"
  cat "$work/$1.out"
  return 1
}
# wait_for WORD [TIMES]: until the program noted it so often (ten seconds).
wait_for() {
  for _ in $(seq 100); do
    [ "$(grep -c "$1" "$NOTES" 2>/dev/null)" = "${2:-2}" ] && return 0
    sleep 0.1
  done
  return 1
}
# Two "nodes" on one host: shared memory between them does not work, and waiting ranks must leave the cores to others.
real_program() { # PROGRAM
  export BATHYS_PROGRAM=$1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_mpi_yield_when_idle=1
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}
slurm_verdict() {
  [ "$failures" -eq 0 ] || tail -n 30 "$work"/*.out
  echo "$failures failed"
  [ "$failures" -eq 0 ]
}
