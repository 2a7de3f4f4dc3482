#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole suite, from a bare Debian 12 machine: installs, builds, tests, lints.
#
#   tests/run.sh [--full] [--preset P] [--jobs N]
#     --full       also the tests labelled slow or full, and the linter over every file
#     --preset P   build and test only this preset (host-release, host-debug, sanitize, cuda)
#     --jobs N     compile jobs and tests at once (default: the cores)
#
# Each stage prints its seconds; the last line counts them. Exit code 0: every stage passed or was skipped with a reason.
set -uo pipefail
# shellcheck source=jobs/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../jobs/lib.sh"

usage() { sed -n '3,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
full=no
presets=(host-release sanitize cuda)
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=yes ;;
    --preset | --jobs)
      [ $# -ge 2 ] || die 2 "$1 needs a value"
      [ "$1" = --preset ] || [[ $2 =~ ^[1-9][0-9]*$ ]] || die 2 "$1 is $2, a number from 1 on is wanted"
      if [ "$1" = --jobs ]; then bathys_jobs=$2; else presets=("$2"); fi
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) die 2 "unknown option $1 (--full, --preset P, --jobs N)" ;;
  esac
  shift
done
cd "$bathys_root" || exit 2
if [ "$full" = yes ]; then export BATHYS_FULL=1; else unset BATHYS_FULL; fi  # the whole product of cases, or a cover of it
mpi_environment

# ---- stages: each a function; 0 passed, 77 skipped (its last line says why), anything else failed ----

# (A stage may run where `set -e` is off: each step that others rest on says `|| return`.)
stage_packages() { install_packages "${build_packages[@]}" "${check_packages[@]}"; }

stage_scripts() {
  local scripts=()
  mapfile -t scripts < <(git ls-files -- '*.sh' .ci/run)
  for script in "${scripts[@]}"; do bash -n "$script"; done
  shellcheck --external-sources --source-path="$bathys_root" "${scripts[@]}"
  say "${#scripts[@]} scripts"
}

stage_format() {
  local sources=()
  mapfile -t sources < <(git ls-files -- 'src/*.hpp' 'src/*.cpp' 'tests/*.hpp' 'tests/*.cpp')
  clang-format-14 --dry-run -Werror "${sources[@]}"
  say "${#sources[@]} files"
}

stage_python() {  # what the comparisons with Python packages need; without it those tests are skipped
  local dir
  if ! dir=$(python_environment); then
    say "the tests that compare with Python packages are skipped"
    return 77
  fi
  say "$dir: $(grep -c '==' tests/requirements.txt) packages"
}

stage_build() {  # PRESET KIND
  local kokkos
  if [ "$2" = cuda ] && ! find_nvcc; then
    say "no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda: the CUDA build is skipped"
    return 77
  fi
  kokkos=$(find_or_build_kokkos "$2") || return
  configure_and_build "$1" "$kokkos"
}

find_nvcc() {  # puts nvcc on PATH
  local home
  command -v nvcc >/dev/null && return 0
  for home in "${CUDA_HOME:-}" /usr/local/cuda; do
    if [ -n "$home" ] && [ -x "$home/bin/nvcc" ]; then
      export CUDA_HOME=$home PATH="$home/bin:$PATH"
      return 0
    fi
  done
  return 1
}

stage_test() {  # PRESET [CTEST OPTION...]
  local dir
  dir=$(preset_dir "$1")
  shift
  if [ "$full" = no ]; then set -- "$@" -LE '^(slow|full)$'; fi
  ctest --test-dir "$dir" --parallel "$bathys_jobs" --output-on-failure --no-tests=error "$@"
}

stage_test_sanitize() {
  export ASAN_OPTIONS=fast_unwind_on_malloc=0:detect_stack_use_after_return=1
  export LSAN_OPTIONS=suppressions=$bathys_root/tests/support/lsan.supp:print_suppressions=0
  export UBSAN_OPTIONS=print_stacktrace=1
  # Twenty times slower than a release build: a model's way through all layers once; the full tier adds the covers of its
  # invariances, and the whole products of units, fuzzers among them.
  local slow='np[48]$|digest'
  if [ "$full" = no ]; then slow="$slow|invariance|engine_np|model_groups"; fi
  stage_test sanitize -L '^unit$' -E "$slow"
  unset BATHYS_FULL
  stage_test sanitize -L '^model$' -E "$slow"
}

stage_tidy() {
  local pattern='/(src|tests)/'
  run-clang-tidy-14 -quiet -j "$bathys_jobs" -p "$(preset_dir host-release)" -extra-arg=-Wno-unknown-warning-option "$pattern" 2>/dev/null
}

# ---- running them ----

passed=0 failed=0 skipped=0
stage() {  # NAME COMMAND...
  local name=$1 code start=$SECONDS
  shift
  say "== $name"
  (
    set -e
    "$@"
  )
  code=$?
  case $code in
    0) passed=$((passed + 1)) result=passed ;;
    77) skipped=$((skipped + 1)) result=skipped ;;
    *) failed=$((failed + 1)) result="FAILED ($code)" ;;
  esac
  say "== $name: $result, $((SECONDS - start)) s"
  return "$code"
}

stage packages stage_packages || {
  say "stages: $passed passed, $failed failed, $skipped skipped"
  exit 1
}
stage scripts stage_scripts
stage python stage_python
stage format stage_format
for preset in "${presets[@]}"; do
  case $preset in
    cuda) stage "build cuda" stage_build cuda cuda ;;
    sanitize) stage "build sanitize" stage_build sanitize host && stage "test sanitize" stage_test_sanitize ;;
    *) stage "build $preset" stage_build "$preset" host && stage "test $preset" stage_test "$preset" ;;
  esac
done
# Minutes of two cores for no number: the linter is the full tier's.
if [ "$full" = yes ] && [ -f "$(preset_dir host-release)/compile_commands.json" ]; then stage tidy stage_tidy; fi
say "stages: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
