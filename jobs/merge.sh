#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts the shares of an array job together: the same words as its jobs/eval.sh had.
#
#   jobs/merge.sh --shares 8 --model SHARD_DIR --requests FILE.jsonl --out RUN_DIR
#
# Result files of all requests then stand in RUN_DIR/merged, equal to those of one job, byte for byte. No model is loaded and
# nothing is computed, so that a login node will do. Exit code 75: an answer is missing; submit the shares that are not done
# again (--array=3,5), then this. It may be repeated and also run as a job (sbatch jobs/merge.sh ..).
#SBATCH --job-name=bathys-merge
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out
set -uo pipefail
# shellcheck source=jobs/lib.sh
source "${BATHYS_ROOT:-${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}}/jobs/lib.sh" || exit 2

program=${BATHYS_PROGRAM:-$(preset_dir "$bathys_preset")/bathys}
[ -x "$program" ] || die 2 "$program is not there; build it (docs/running.md) or name another by BATHYS_PROGRAM"
split_words "$@"
require_shares "--shares N is missing, the number the array job was given"
sources=()
for ((k = 0; k < shares; k++)); do
  [ -d "$out/share-$k" ] || die 75 "$out/share-$k is not there: task $k of the array has not run; submit it (--array=$k) and run this again"
  sources+=("$out/share-$k")
done
mpi_environment
# One process, also inside a job whose step variables speak of more.
exec "$program" eval "${words[@]}" --out "$out/merged" --take-from "${sources[@]}" --no-new-answers --single-process
