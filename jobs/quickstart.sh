#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian 12 machine to scores: installs what is missing, builds, converts the nano model of inputs/models/nano to
# HDF5 shards and evaluates real text with it on two MPI ranks. Run again, it takes up what is done already.
#
#   jobs/quickstart.sh [--jobs N] [--ranks R] [--fresh]
#     --jobs N     compile jobs at once (default: the cores)
#     --ranks R    MPI ranks of the evaluation: 1, 2, 4 or 8 (default 2); no number below depends on it
#     --fresh      evaluate again instead of showing the finished results
set -euo pipefail
# shellcheck source=jobs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ranks=2
fresh=no
while [ $# -gt 0 ]; do
  case $1 in
    --fresh) fresh=yes ;;
    --jobs | --ranks)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die 2 "$1 is ${2:-missing}, a number from 1 on is wanted"
      if [ "$1" = --jobs ]; then bathys_jobs=$2; else ranks=$2; fi
      shift
      ;;
    -h | --help)
      sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die 2 "unknown option $1 (--jobs N, --ranks R, --fresh)" ;;
  esac
  shift
done

work=$bathys_build/quickstart
shards=$work/nano
program=$(preset_dir host-release)/bathys
mpi_environment

step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

step "packages"
install_packages "${build_packages[@]}"

step "build"
kokkos=$(find_or_build_kokkos host)
configure_and_build host-release "$kokkos" bathys
say "$program"

step "convert inputs/models/nano to HDF5 shards"
"$program" convert "$bathys_root/inputs/models/nano" "$shards"

# evaluate NAME: one request file into its own run folder; a finished run is shown again, a stopped one goes on.
evaluate() {
  local name=$1
  step "evaluate inputs/requests/$name.jsonl on $ranks MPI ranks"
  [ "$fresh" = no ] || rm -rf "${work:?}/$name"
  mpirun -n "$ranks" "$program" eval --model "$shards" --requests "$bathys_root/inputs/requests/$name.jsonl" --out "$work/$name"
}
evaluate heldout
evaluate choices
evaluate prompts

step "texts: prompt | what the model wrote"
python3 - "$bathys_root/inputs/requests/prompts.jsonl" "$work/prompts/results.jsonl" <<'SHOW'
import json, sys
requests, results = ([json.loads(line) for line in open(name, encoding="utf-8")] for name in sys.argv[1:])
for request, result in zip(requests, results):
    body = request["body"]
    prompt = body["context"] if "context" in body else body["messages"][-1]["content"]
    print(f"\n{prompt} | {result['result']['text']}" if result["ok"] else f"\n{prompt} | failed: {result['error']['message']}")
SHOW

step "done"
say "in $work/{heldout,choices,prompts}: results.jsonl (one line per request), summary.json, and what docs/running.md lists"
