#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Slurm job scripts against a real Slurm, with a small program in bathys's place: exit codes arrive, a stop is requeued and
# goes on, a second stop without requeue stays, a signal to the batch shell reaches every rank.  With the program and its inputs given,
# the same once more for real: converted and evaluated on two ranks, stopped, requeued, equal to a run that was left alone.
#
#   slurm_test.sh [PROGRAM INPUTS_DIR]        exit 77 where there is no Slurm
set -uo pipefail
# shellcheck source=tests/jobs/slurm_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/slurm_lib.sh"
slurm_start 1 17100

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
  real_program "$1"
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
fi
slurm_verdict
