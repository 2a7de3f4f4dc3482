#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Slurm job: evaluates a request file on GPUs, one rank each, with the program of the preset cuda. Used as jobs/eval.sh, arrays
# included:
#
#   sbatch --nodes=4 jobs/eval_gpu.sh --model SHARD_DIR --requests FILE.jsonl --out RUN_DIR
#
# Each rank takes the GPU of its number on the node, so all of a node's GPUs stay visible to all its ranks (no --gpus-per-task,
# which would hide those of the others and with them the direct ways between GPUs).
#SBATCH --job-name=bathys-eval-gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail
export BATHYS_PRESET=${BATHYS_PRESET:-cuda}
# shellcheck source=jobs/lib.sh
source "${BATHYS_ROOT:-${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}}/jobs/lib.sh" || exit 2

bathys_binding=(--cpu-bind=cores --gpu-bind=none)
# NCCL carries what GPUs exchange; an MPI that talks to GPUs beside it can deadlock.
export MPICH_GPU_SUPPORT_ENABLED=${MPICH_GPU_SUPPORT_ENABLED:-0}
eval_words "$@"
slurm_begin bathys eval "${words[@]}"
slurm_step "$bathys_program" eval "${words[@]}"
slurm_end $?
