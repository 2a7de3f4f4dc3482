#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Slurm job: converts a released checkpoint to HDF5 shards.
#
#   sbatch [--ntasks=N] jobs/convert.sh CHECKPOINT_DIR SHARD_DIR
#
# Submitted from the checkout (or BATHYS_ROOT names it). Both folders must be seen from all compute nodes; SHARD_DIR needs as
# much space as the checkpoint. N ranks write files of their own, the same bytes for any N.
#SBATCH --job-name=bathys-convert
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -uo pipefail
# shellcheck source=jobs/lib.sh
source "${BATHYS_ROOT:-${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}}/jobs/lib.sh" || exit 2

slurm_begin bathys convert "$@"
slurm_step "$bathys_program" convert "$@"
slurm_end $?
