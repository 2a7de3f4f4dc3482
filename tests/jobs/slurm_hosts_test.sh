#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One evaluation over two hosts of a private Slurm, each a network namespace: ranks that reach each other by TCP alone, a host whose
# slurmd dies in the middle of the work, the job that runs again and the same bytes as on one host.
#
#   slurm_hosts_test.sh PROGRAM INPUTS_DIR        exit 77 where there is no Slurm or no network namespace
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export PATH=$PATH:/usr/sbin
for tool in slurmctld slurmd munged sbatch ip nsenter; do
  command -v "$tool" >/dev/null || { echo "no $tool: skipped"; exit 77; }
done
[ "$(id -u)" -eq 0 ] || { echo "a private Slurm needs root: skipped"; exit 77; }
ip netns add "b$$-probe" 2>/dev/null || { echo "no network namespaces: skipped"; exit 77; }
entered=$(ip netns exec "b$$-probe" true 2>&1) || { ip netns del "b$$-probe"; echo "no program starts in a network namespace ($entered): skipped"; exit 77; }
ip netns del "b$$-probe"
[ $# -eq 2 ] || { echo "no program given: skipped"; exit 77; }
work=$(mktemp -d)
mkdir "$work/slurm"
down() {
  bash "$root/tests/jobs/slurm_hosts_down.sh" "$work/slurm"
  rm -rf "$work"
}
trap down EXIT
bash "$root/tests/jobs/slurm_hosts_up.sh" "$work/slurm" 2 || exit 1
export SLURM_CONF=$work/slurm/slurm.conf BATHYS_ROOT=$root BATHYS_PROGRAM=$1
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
on() { "$work/slurm/on" h1 "$@"; }
failures=0
expect() { # WORDS FOUND EXPECTED
  if [ "$2" = "$3" ]; then echo "ok: $1 ($SECONDS s)"; else echo "FAILED: $1: found '$2', expected '$3'"; failures=$((failures + 1)); fi
}
field() { on scontrol -o show job "$1" | head -n 1 | grep -o " $2=[^ ]*" | cut -d= -f2; }
finish() {
  for _ in $(seq 600); do
    case $(field "$1" JobState) in COMPLETED | FAILED | CANCELLED | TIMEOUT) return 0 ;; esac
    sleep 0.2
  done
  echo "job $1 did not end"
}
head -n 40 "$2/requests/choices.jsonl" >"$work/requests.jsonl"
"$BATHYS_PROGRAM" convert "$2/models/nano" "$work/nano" >/dev/null 2>&1
words=(--model "$work/nano" --requests "$work/requests.jsonl")
OMP_NUM_THREADS=1 "$BATHYS_PROGRAM" eval "${words[@]}" --out "$work/alone" >/dev/null 2>&1
submit() { on sbatch --parsable --nodes=2 --ntasks-per-node=1 --time=5 --output="$work/%j.out" "$root/jobs/eval.sh" "${words[@]}" "$@"; }

id=$(submit --out "$work/two")
finish "$id"
expect "two hosts answer" "$(field "$id" ExitCode) $(grep -o 'nodes=2 hosts=[^ ]*' "$work/$id.out")" "0:0 nodes=2 hosts=h1,h2"
expect "with the bytes of one" "$(cmp "$work/alone/results.jsonl" "$work/two/results.jsonl" && echo equal)" equal

id=$(submit --out "$work/failed" --watchdog-seconds 30)
for _ in $(seq 300); do [ "$(cat "$work"/failed/journal/*.jsonl 2>/dev/null | wc -l)" -gt 3 ] && break; sleep 0.1; done
kill -9 "$(cat "$work/slurm/run/slurmd.h2.pid")" # the host is lost to Slurm, which finds out in ten seconds
on scontrol update NodeName=h2 State=DOWN Reason=test
sleep 1
"$work/slurm/on" h2 slurmd -f "$SLURM_CONF"
on scontrol update NodeName=h2 State=RESUME 2>/dev/null || true # it may be back by itself
finish "$id"
expect "the job of a lost host runs again" "$(field "$id" JobState) $(field "$id" Restarts)" "COMPLETED 1"
expect "and ends with the same bytes" "$(cmp "$work/alone/results.jsonl" "$work/failed/results.jsonl" && echo equal)" equal
[ "$failures" -eq 0 ] || tail -n 30 "$work"/*.out
echo "$failures failed"
[ "$failures" -eq 0 ]
