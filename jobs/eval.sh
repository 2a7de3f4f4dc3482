#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Slurm job: evaluates a request file. Give the resources to sbatch and the options of `bathys eval` behind the script:
#
#   sbatch --nodes=4 jobs/eval.sh --model SHARD_DIR --requests FILE.jsonl --out RUN_DIR
#
# As an array, each task answers a share of the requests in RUN_DIR/share-K, and jobs/merge.sh puts the shares together:
#
#   sbatch --array=0-7 jobs/eval.sh --shares 8 --model SHARD_DIR --requests FILE.jsonl --out RUN_DIR
#
# Submitted from the checkout (or BATHYS_ROOT names it). A job that runs out of time stops with 75 and is requeued under its
# own id; where a centre forbids that, set BATHYS_REQUEUE=0 and submit the same command again: both go on in RUN_DIR.
#SBATCH --job-name=bathys-eval
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=01:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail
# Slurm runs a copy of this file from its spool folder, so the checkout is found by where sbatch was called.
# shellcheck source=jobs/lib.sh
source "${BATHYS_ROOT:-${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}}/jobs/lib.sh" || exit 2

eval_words "$@"
slurm_begin bathys eval "${words[@]}"
slurm_step "$bathys_program" eval "${words[@]}"
slurm_end $?
