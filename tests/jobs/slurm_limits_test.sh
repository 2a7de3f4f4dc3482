#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Job scripts under what happens to jobs, on a real Slurm of two nodes: arrays and their merge, chains, the time limit, scancel,
# a node that fails.  With a small program in bathys's place, and with the program and its inputs given once more for real.
#
#   slurm_limits_test.sh [PROGRAM INPUTS_DIR]        exit 77 where there is no Slurm
set -uo pipefail
# shellcheck source=tests/jobs/slurm_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/slurm_lib.sh"
slurm_start 2 17300

# In bathys's place: notes its words and its node; with `wait` among them sleeps until USR1 or TERM, then leaves with 75, and at
# once with 0 when it was started before or $DONE is there.
cat >"$BATHYS_PROGRAM" <<'P'
#!/usr/bin/env bash
note() { echo "$* job=${SLURM_JOB_NAME} task=${SLURM_ARRAY_TASK_ID:-none} restart=${SLURM_RESTART_COUNT:-0}" >>"$NOTES"; }
note "start $* node=$SLURMD_NODENAME"
case "$*" in *wait*) ;; *) exit 0 ;; esac
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || [ -e "${DONE:-/nonexistent}" ]; then note again; exit 0; fi
trap 'note usr1; exit 75' USR1
trap 'note term; exit 75' TERM
for _ in $(seq 600); do sleep 0.1; done
exit 70
P
chmod +x "$BATHYS_PROGRAM"
submit() { sbatch --parsable --ntasks-per-node=1 --time=15 --output="$work/%j.out" "$@"; }

# ---- arrays ----
export NOTES=$work/array
id=$(submit --array=0-2 "$root/jobs/eval.sh" --shares 3 --out "$work/a" --model m)
for task in 0 1 2; do finish "${id}_$task"; done
expect "each task of an array has its share and folder" "$(sort "$NOTES" | sed 's/ node=.*//' | tr '\n' ';')" \
  "start eval --out $work/a/share-0 --model m --share 0/3;start eval --out $work/a/share-1 --model m --share 1/3;start eval --out $work/a/share-2 --model m --share 2/3;"
id=$(submit --array=0-0 "$root/jobs/eval.sh" --out "$work/a")
finish "${id}_0"
expect "an array without --shares is refused" "$(field "${id}_0" ExitCode)" "2:0"
export NOTES=$work/array_stop
id=$(submit --array=0-1 "$root/jobs/eval.sh" --shares 2 --out "$work/a" wait)
wait_for start || echo "the tasks did not start"
scancel --signal=USR1 "${id}_1"
finish "${id}_1"
expect "a task that stopped early is requeued alone" "$(field "${id}_1" JobState) $(grep -c again "$NOTES")" "COMPLETED 1"
scancel "${id}_0"
finish "${id}_0"
expect "scancel ends a job for good" "$(field "${id}_0" JobState) $(field "${id}_0" Restarts)" "CANCELLED 0"
expect "its ranks were asked to stop" "$(grep -c 'term.*task=0' "$NOTES")" 1

# ---- GPUs: there are none here, so the command alone ----
found=$(BATHYS_DRY_RUN=1 SLURM_JOB_ID=1 SLURM_ARRAY_TASK_ID=2 bash "$root/jobs/eval_gpu.sh" --shares 4 --model m --out=o | grep -o 'srun .*')
expect "the GPU variant's command" "$found" \
  "srun --mpi=pmix --kill-on-bad-exit=0 --wait=60 --cpu-bind=cores --gpu-bind=none  $BATHYS_PROGRAM eval --out o/share-2 --model m --share 2/4\""
found=$(BATHYS_DRY_RUN=1 BATHYS_PROGRAM='' SLURM_JOB_ID=1 BATHYS_BUILD_DIR=$work bash "$root/jobs/eval_gpu.sh" --model m --out o 2>&1)
expect "it wants the program of the CUDA build" "$found" \
  "bathys: error: $work/cuda/bathys is not there; build it (docs/running.md) or name another by BATHYS_PROGRAM"

# ---- a chain ----
export NOTES=$work/chain DONE=$work/chain_done
mapfile -t chain < <("$root/jobs/chain.sh" 3 --ntasks-per-node=1 --time=15 --output="$work/%j.out" "$root/jobs/eval.sh" wait)
expect "a chain has as many jobs as asked for" "${#chain[@]}" 3
wait_for start 1 || echo "the chain did not start"
sleep 1
expect "one after the other" "$(field "${chain[1]}" JobState) $(field "${chain[2]}" JobState)" "PENDING PENDING"
touch "$DONE" # what the first did not finish, the second does
scancel --signal=USR1 "${chain[0]}"
for id in "${chain[@]}"; do finish "$id"; done
expect "the next goes on, the last finds all done" "$(for id in "${chain[@]}"; do field "$id" ExitCode; done | tr '\n' ' ')" "75:0 0:0 0:0 "
unset DONE

# ---- the time limit ----  (Slurm gives the signal up to a minute early: with 55 s before the end of one minute, at once)
export NOTES=$work/limit
id=$(submit --time=1 --signal=USR1@55 "$root/jobs/eval.sh" wait)
finish "$id"
expect "before the time is up the job stops, is requeued and ends" "$(field "$id" JobState) $(field "$id" Restarts) $(grep -c usr1 "$NOTES")" "COMPLETED 1 1"

# ---- a node fails ----
export NOTES=$work/node
id=$(submit --nodelist=n2 --requeue "$root/jobs/eval.sh" wait)
wait_for start 1 || echo "the job did not start"
scontrol update NodeName=n2 State=DOWN Reason=test
sleep 1
scontrol update NodeName=n2 State=RESUME
finish "$id"
expect "a job whose node failed runs again under its own id" "$(field "$id" JobState) $(field "$id" Restarts) $(grep -c again "$NOTES")" "COMPLETED 1 1"

# ---- for real ----
if [ $# -eq 2 ]; then
  real_program "$1"
  model=$work/shards requests=$work/requests.jsonl
  head -n 24 "$2/requests/choices.jsonl" >"$requests"
  "$BATHYS_PROGRAM" convert "$2/models/nano" "$model" >/dev/null 2>&1
  words=(--model "$model" --requests "$requests")
  whole=$(submit "$root/jobs/eval.sh" "${words[@]}" --out "$work/whole")
  id=$(submit --array=0-2 "$root/jobs/eval.sh" --shares 3 "${words[@]}" --out "$work/parts" --grace-seconds 0)
  bash "$root/jobs/merge.sh" --shares 4 "${words[@]}" --out "$work/parts" >/dev/null 2>&1
  expect "a merge of shares that are not there says so" $? 75
  finish "$whole"
  for task in 0 1 2; do finish "${id}_$task"; done
  merged=$(submit "$root/jobs/merge.sh" --shares 3 "${words[@]}" --out "$work/parts")
  finish "$merged"
  expect "the shares of an array, put together by a job, equal one job" \
    "$(field "$merged" ExitCode) $(cmp "$work/whole/results.jsonl" "$work/parts/merged/results.jsonl" && echo equal)" "0:0 equal"
fi
slurm_verdict
