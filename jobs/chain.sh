#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Submits one job N times as a chain, for work longer than the centre's time limit where jobs may not requeue themselves: each
# starts when the one before has ended, however it ended, and goes on in the same folder; one that finds all done ends at once.
#
#   jobs/chain.sh N [SBATCH OPTION...] jobs/eval.sh WORD...
#
# Prints the ids of the jobs. `scancel` what is no longer wanted.
set -euo pipefail
# shellcheck source=jobs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  die 2 "the words are: jobs/chain.sh N [SBATCH OPTION...] SCRIPT WORD..."
fi
n=$1
shift
# Jobs of one name and user follow each other (singleton); the name is this chain's own.
name=bathys-chain-$(date +%Y%m%d-%H%M%S)-$$
export BATHYS_REQUEUE=0
for ((i = 0; i < n; i++)); do
  sbatch --parsable --job-name="$name" --dependency=singleton "$@"
done
