#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Slurm job scripts against a real Slurm, with a small program in bathys's place: exit codes arrive, a stop is requeued and
# goes on, a second stop without requeue stays, a signal to the batch shell reaches every rank.  With the program and its inputs given,
# the same once more for real: converted and evaluated on two ranks, stopped, requeued, equal to a run that was left alone.
#
#   slurm_test.sh [PROGRAM INPUTS_DIR]        exit 77 where there is no Slurm
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
for tool in slurmctld slurmd munged sbatch; do
  if ! PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null; then
    echo "no $tool: skipped"
    exit 77
  fi
done
[ "$(id -u)" -eq 0 ] || { echo "a private Slurm needs root: skipped"; exit 77; }
export PATH=$PATH:/usr/sbin
work=$(mktemp -d)
down() {
  local pidfile
  for pidfile in "$work"/slurm/run/*.pid; do
    [ -f "$pidfile" ] && kill "$(cat "$pidfile")" 2>/dev/null
  done
  sleep 0.5
  rm -rf "$work"
}
trap down EXIT
mkdir "$work/slurm"
bash "$root/tests/jobs/slurm_up.sh" "$work/slurm" 1 17100 || exit 1
export SLURM_CONF=$work/slurm/slurm.conf BATHYS_ROOT=$root BATHYS_PROGRAM=$work/program

# In bathys's place: `program eval CODE` leaves with CODE; `program eval wait` sleeps until USR1 and leaves with 75 the first
# time, with 0 when it was started before; each rank notes what it saw.
cat >"$BATHYS_PROGRAM" <<'P'
#!/usr/bin/env bash
note() { echo "$SLURM_PROCID $*" >>"$NOTES"; }
note "start restart=${SLURM_RESTART_COUNT:-0} threads=$OMP_NUM_THREADS"
[ "$2" = wait ] || exit "$2"
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then note again; exit 0; fi
trap 'note usr1; exit 75' USR1
for _ in $(seq 300); do sleep 0.1; done
exit 70
P
chmod +x "$BATHYS_PROGRAM"

failures=0
expect() {  # WORDS FOUND EXPECTED
  if [ "$2" = "$3" ]; then echo "ok: $1"; else echo "FAILED: $1: found '$2', expected '$3'"; failures=$((failures + 1)); fi
}
field() { scontrol -o show job "$1" | grep -o " $2=[^ ]*" | cut -d= -f2; }
finish() {  # ID: waits for the job's end (two minutes)
  for _ in $(seq 600); do
    case $(field "$1" JobState) in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return 0 ;; esac
    sleep 0.2
  done
  echo "job $1 did not end"; cat "$work/$1.out"; return 1
}
wait_for() { for _ in $(seq 100); do [ "$(grep -c "$1" "$NOTES" 2>/dev/null)" = 2 ] && return 0; sleep 0.1; done; return 1; }
submit() { sbatch --parsable --ntasks-per-node=2 --time=15 --output="$work/%j.out" "$root/jobs/eval.sh" "$@"; }

export NOTES=$work/codes
for code in 0 65 70 76; do
  id=$(submit "$code")
  finish "$id"
  expect "exit code $code arrives" "$(field "$id" ExitCode)" "$code:0"
  expect "$code is not requeued" "$(field "$id" Restarts)" 0
done

export NOTES=$work/requeue
id=$(submit wait)
wait_for start || echo "the ranks did not start"
scancel --signal=USR1 "$id"
finish "$id"
expect "a job that stopped early goes on under its own id" "$(field "$id" JobState) $(field "$id" Restarts)" "COMPLETED 1"
expect "every rank saw the signal and ran again" "$(sort "$NOTES" | tr '\n' ';')" \
  "0 again;0 start restart=0 threads=1;0 start restart=1 threads=1;0 usr1;1 again;1 start restart=0 threads=1;1 start restart=1 threads=1;1 usr1;"

export NOTES=$work/shell BATHYS_REQUEUE=0
id=$(submit wait)
wait_for start || echo "the ranks did not start"
scancel --batch --signal=USR1 "$id"
finish "$id"
expect "a signal to the batch shell reaches the ranks, and without requeue the job ends with 75" \
  "$(grep -c usr1 "$NOTES") $(field "$id" ExitCode) $(field "$id" Restarts)" "2 75:0 0"

id=$(BATHYS_SITE=nowhere submit 0)
finish "$id"
expect "an unknown site is refused" "$(field "$id" ExitCode)" "2:0"

if [ $# -eq 2 ]; then
  unset BATHYS_REQUEUE
  # Two "nodes" on one host: shared memory between them does not work, and waiting ranks must leave the cores to others.
  export BATHYS_PROGRAM=$1 OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_mpi_yield_when_idle=1
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  eval_job() { submit --model "$work/shards" --requests "$2/requests/choices.jsonl" --out "$work/$1" --grace-seconds 0; }
  id=$(sbatch --parsable --time=15 --output="$work/%j.out" "$root/jobs/convert.sh" "$2/models/nano" "$work/shards")
  finish "$id"
  expect "the model is converted" "$(field "$id" ExitCode)" "0:0"
  id=$(eval_job whole "$2")
  finish "$id"
  expect "two ranks evaluate" "$(field "$id" ExitCode) $(wc -l <"$work/whole/results.jsonl")" "0:0 $(wc -l <"$2/requests/choices.jsonl")"
  id=$(eval_job stopped "$2")
  for _ in $(seq 600); do [ "$(cat "$work"/stopped/journal/*.jsonl 2>/dev/null | wc -l)" -gt 20 ] && break; sleep 0.1; done  # some answers are there
  scancel --signal=USR1 "$id"
  finish "$id"
  expect "stopped by USR1 it is requeued and ends" "$(field "$id" JobState) $(field "$id" Restarts)" "COMPLETED 1"
  expect "its results equal those of the run left alone" "$(cmp "$work/whole/results.jsonl" "$work/stopped/results.jsonl" && echo equal)" equal
  [ "$failures" -eq 0 ] || tail -n 30 "$work"/*.out
fi
echo "$failures failed"
[ "$failures" -eq 0 ]
