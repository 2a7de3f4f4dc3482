#!/usr/bin/env bash
# The bits of a model's logits are the same on 1 and 2 threads, 1, 2 and 4 ranks, and with the SIMD bodies of every instruction set the
# machine has.   usage: digest_test.sh DIGEST_PROGRAM MPIEXEC
set -euo pipefail
program=$1 mpiexec=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 OMP_PROC_BIND=false OMP_WAIT_POLICY=passive
failed=0
for model in base plain nano; do
  want=$(OMP_NUM_THREADS=1 "$program" "$model" 1 9 33 190 2>/dev/null)
  echo "1 rank, 1 thread: $want"
  check() {
    local got
    got=$("${@:2}" "$program" "$model" 1 9 33 190 2>/dev/null)
    if [ "$got" = "$want" ]; then echo "$1: equal"; else echo "$1: DIFFERS: $got"; failed=1; fi
  }
  check "1 rank, 2 threads" env OMP_NUM_THREADS=2
  for simd in AVX2 AVX3 AVX3_DL; do
    if OMP_NUM_THREADS=1 BATHYS_SIMD=$simd "$program" "$model" 1 >/dev/null 2>&1; then
      check "$simd bodies" env OMP_NUM_THREADS=1 BATHYS_SIMD=$simd
    else
      echo "$simd bodies: not on this machine"
    fi
  done
  check "2 ranks, 2 threads" env OMP_NUM_THREADS=2 "$mpiexec" --oversubscribe --bind-to none -n 2
  check "4 ranks" env OMP_NUM_THREADS=1 "$mpiexec" --oversubscribe --bind-to none -n 4
done
exit $failed
