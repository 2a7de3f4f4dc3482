#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts share: packages, Kokkos, building, the environment of MPI and OpenMP. Source it; it runs nothing by itself.
# Every step is idempotent and quick when its work is done already.
#
#   BATHYS_BUILD_DIR  holds one build folder per preset (default: build/ of the checkout)
#   BATHYS_DEPS       where what is not packaged is installed (default: ~/.cache/bathys)
#   Kokkos_ROOT       an installed Kokkos (default: one is built into BATHYS_DEPS)
#   BATHYS_JOBS       compile jobs at once (default: the cores this process may use)

bathys_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bathys_build=${BATHYS_BUILD_DIR:-$bathys_root/build}
bathys_jobs=${BATHYS_JOBS:-$(nproc)}

# The Debian 12 packages the program is built from, and those its tests and lint need beyond them. This is the one list;
# elsewhere (a cluster's modules, Spack, other distributions) the same libraries are found by CMake.
# shellcheck disable=SC2034  # the scripts that source this name them
build_packages=(g++ cmake ninja-build git ca-certificates pkg-config ccache python3
  libopenmpi-dev openmpi-bin libhdf5-dev hdf5-tools libhwy-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev
  libssl-dev libxxhash-dev libutf8proc-dev libgtest-dev libgmock-dev)
# shellcheck disable=SC2034
check_packages=(python3-venv python3-h5py python3-numpy shellcheck clang-format-14 clang-tidy-14 slurm-wlm munge iproute2)

say() { printf '%s\n' "$*"; }
die() {  # CODE WORDS...: one cause line and the exit code
  local code=$1
  shift
  printf 'bathys: error: %s\n' "$*" >&2
  exit "$code"
}

# run_logged LOG COMMAND...: runs quietly; shows the end of the log and fails when the command fails.
run_logged() {
  local log=$1 code=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 || code=$?
  if [ "$code" -ne 0 ]; then
    tail -n 60 "$log" >&2
    printf 'bathys: error: %s failed with %d; the whole log is %s\n' "$*" "$code" "$log" >&2
  fi
  return "$code"
}

# install_packages NAME...: installs what is missing. As root by apt-get; otherwise says what to ask for.
install_packages() {
  local name missing=()
  if ! command -v dpkg-query >/dev/null; then
    say "packages: not a Debian system, nothing installed; needed are the libraries that docs/running.md lists"
    return 0
  fi
  for name in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "packages: all $# installed"
    return 0
  fi
  if [ "$(id -u)" -ne 0 ]; then
    die 2 "these packages are missing and only root can install them: ${missing[*]}" \
      "(ask for: apt-get install --no-install-recommends ${missing[*]})"
  fi
  say "packages: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  run_logged "$bathys_build/log/apt-update.log" apt-get update || return
  run_logged "$bathys_build/log/apt-install.log" apt-get install -y --no-install-recommends "${missing[@]}"
}

preset_dir() { printf '%s/%s' "$bathys_build" "$1"; }  # PRESET: its build folder

# find_or_build_kokkos KIND: prints the folder of an installed Kokkos of KIND (host or cuda), building it the first time.
find_or_build_kokkos() {
  local kind=$1 log="$bathys_build/log/kokkos-$1.log" prefix
  if [ "$kind" = host ] && [ -n "${Kokkos_ROOT:-}" ]; then
    printf '%s\n' "$Kokkos_ROOT"
    return 0
  fi
  mkdir -p "$bathys_build/log"
  if ! prefix=$(bash "$bathys_root/src/cmake/install_kokkos.sh" "$kind" 2>"$log"); then
    tail -n 40 "$log" >&2
    printf 'bathys: error: Kokkos (%s) could not be built; the whole log is %s; an installed one is taken from Kokkos_ROOT\n' \
      "$kind" "$log" >&2
    return 1
  fi
  printf '%s\n' "$prefix" | tail -n 1
}

# python_environment: the virtual environment of the packages in tests/requirements.txt, made or updated; prints its folder.
# Some tests compare the program with those packages; CTest takes the environment from the same folder.
# Fails with one line on stderr where it cannot be made (no registry in reach, no venv module).
python_environment() {
  local dir=${BATHYS_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/bathys}/python log="$bathys_build/log/python-environment.log"
  local wanted="$bathys_root/tests/requirements.txt"
  mkdir -p "$(dirname "$dir")" "$(dirname "$log")" || return
  (
    flock 9 # several checkouts may share the folder
    if ! cmp -s "$wanted" "$dir/requirements.txt"; then
      {
        { [ -x "$dir/bin/python" ] || python3 -m venv "$dir"; } &&
          "$dir/bin/python" -m pip install --disable-pip-version-check --no-input -r "$wanted" && cp "$wanted" "$dir/requirements.txt"
      } >"$log" 2>&1
    fi
  ) 9>"$dir.lock" || {
    printf 'bathys: no Python environment in %s: %s; the whole log is %s\n' "$dir" "$(tail -n 1 "$log")" "$log" >&2
    return 1
  }
  printf '%s\n' "$dir"
}

# configure_and_build PRESET KOKKOS_DIR [TARGET...]: CMake and Ninja in the preset's build folder; all targets by default.
configure_and_build() {
  local preset=$1 kokkos=$2 dir options=()
  shift 2
  dir=$(preset_dir "$preset")
  if [ "$preset" = cuda ]; then
    options+=("-DCMAKE_CXX_COMPILER=$kokkos/bin/nvcc_wrapper")
  fi
  run_logged "$bathys_build/log/configure-$preset.log" \
    cmake --preset "$preset" -S "$bathys_root" -B "$dir" "-DKokkos_ROOT=$kokkos" "${options[@]}" || return
  run_logged "$bathys_build/log/build-$preset.log" cmake --build "$dir" --parallel "$bathys_jobs" ${1:+--target "$@"}
}

# mpi_environment: exports what Open MPI and OpenMP need on a shared machine or in a container; settings of the caller stay.
mpi_environment() {
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_PROC_BIND=${OMP_PROC_BIND:-false}
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
  if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
}

# ---- inside a Slurm job ----

site_srun_options=()  # a site's file may set it, and bathys_binding beside it
bathys_binding=(--cpu-bind=cores)
bathys_preset=${BATHYS_PRESET:-host-release}  # whose program runs: cuda for GPUs

slurm_asked=''     # the last signal that asked this job for a stop, and how many did
slurm_n_asked=0
slurm_step_pid=''  # srun, while it runs

# slurm_ask SIGNAL: a stop is asked for; srun passes it on to every rank.
slurm_ask() {
  slurm_asked=$1
  slurm_n_asked=$((slurm_n_asked + 1))
  [ -z "$slurm_step_pid" ] || kill -"$1" "$slurm_step_pid" 2>/dev/null
}

# slurm_begin WORDS...: the site's file, threads per rank, and the lines a later reader wants: commit, nodes, command. Signals
# that come before the step are kept for it.
slurm_begin() {
  trap 'slurm_ask USR1' USR1
  trap 'slurm_ask TERM' TERM
  [ -n "${SLURM_JOB_ID:-}" ] || die 2 "this is a Slurm batch script; start it by sbatch, or run the program under mpirun (docs/running.md)"
  if [ -n "${BATHYS_SITE:-}" ]; then
    [ -f "$bathys_root/jobs/sites/$BATHYS_SITE.sh" ] || die 2 "jobs/sites/$BATHYS_SITE.sh does not exist; BATHYS_SITE names a file of that folder"
    # shellcheck source=jobs/sites/example.sh
    source "$bathys_root/jobs/sites/$BATHYS_SITE.sh"
  fi
  bathys_program=${BATHYS_PROGRAM:-$(preset_dir "$bathys_preset")/bathys}
  [ -x "$bathys_program" ] || die 2 "$bathys_program is not there; build it (docs/running.md) or name another by BATHYS_PROGRAM"
  # srun does not inherit --cpus-per-task from sbatch.
  export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
  export OMP_PLACES=cores OMP_PROC_BIND=spread
  printf 'event=job id=%s restart=%s nodes=%s tasks=%s cpus_per_task=%s commit=%s site=%s\n' "$SLURM_JOB_ID" "${SLURM_RESTART_COUNT:-0}" \
    "${SLURM_JOB_NODELIST:-}" "${SLURM_NTASKS:-1}" "$SRUN_CPUS_PER_TASK" \
    "$(git -C "$bathys_root" rev-parse --short HEAD 2>/dev/null || echo unknown)" "${BATHYS_SITE:-none}"
  printf 'event=command words="%s"\n' "$*"
}

# Seconds that ranks may take to leave after the first one has: all of them meet before, so one that does not is stopped.
bathys_srun=(srun --mpi=pmix --kill-on-bad-exit=0 --wait=60)

# slurm_step ARGUMENT...: srun, waited for to its end; a signal that reaches this shell is passed on to every rank. Returns
# the program's exit code: --kill-on-bad-exit=0, since 1 would make 143 of a 75 when one rank leaves before the others. Where
# srun itself ends by the signal, before it has started any rank, that is a stop as well.
slurm_step() {
  local code again seen=0
  if [ "${BATHYS_DRY_RUN:-0}" = 1 ]; then
    printf 'event=dry_run command="%s"\n' "${bathys_srun[*]} ${bathys_binding[*]} ${site_srun_options[*]} $*"
    return 0
  fi
  [ -z "$slurm_asked" ] || return 75
  "${bathys_srun[@]}" "${bathys_binding[@]}" "${site_srun_options[@]}" "$@" &
  slurm_step_pid=$!
  # Between the look above and the line before, a trap knew no srun to tell.
  [ -z "$slurm_asked" ] || kill -"$slurm_asked" "$slurm_step_pid" 2>/dev/null
  wait "$slurm_step_pid"
  code=$?
  while [ "$slurm_n_asked" -ne "$seen" ]; do  # a trap ended the wait, not srun
    seen=$slurm_n_asked
    wait "$slurm_step_pid"
    again=$?
    if [ "$again" -ne 127 ]; then code=$again; fi  # 127: srun had ended before, its code is known
  done
  slurm_step_pid=''
  case $slurm_asked:$code in
    USR1:138 | TERM:143) code=75 ;;
  esac
  return "$code"
}

# split_words WORDS...: words of `bathys eval` and `--shares N` into $shares, $out (RUN_DIR of --out) and the array `words` (all others).
split_words() {
  local word
  shares='' out='' words=()
  while [ $# -gt 0 ]; do
    word=$1
    shift
    case $word in
      --shares) shares=${1:-}; shift ;;
      --shares=*) shares=${word#*=} ;;
      --out) out=${1:-}; shift ;;
      --out=*) out=${word#*=} ;;
      *) words+=("$word") ;;
    esac
  done
}

# require_shares WORDS...: $shares is the number of an array's tasks and $out is there; else ends with WORDS or what is missing.
require_shares() {
  [[ $shares =~ ^[1-9][0-9]*$ ]] || die 2 "$@"
  [ -n "$out" ] || die 2 "--out RUN_DIR is missing, the folder that the shares of an array job lie in"
}

# eval_words WORDS...: the words of `bathys eval` into the array `words`. `--shares N` among them makes the job one of N
# (an array's task K answers share K/N in OUT/share-K); what else was given goes through.
eval_words() {
  local shares out task=${SLURM_ARRAY_TASK_ID:-}
  split_words "$@"
  if [ -z "$shares$task" ]; then
    words=("$@")
    return 0
  fi
  require_shares "an array job needs --shares N, the number of its tasks in all (also when only some are run again)"
  [ -n "$task" ] || die 2 "--shares $shares is for array jobs: sbatch --array=0-$((shares - 1)) ..."
  [ "$task" -lt "$shares" ] || die 2 "array task $task is none of the $shares shares; submit with --array=0-$((shares - 1))"
  words=(--out "$out/share-$task" "${words[@]}" --share "$task/$shares")
}

# slurm_cancelled ID: whether somebody cancelled the job that we are. Its state is COMPLETING then, as it is when the time is up.
slurm_cancelled() {
  case $(scontrol -o show job "$1" 2>/dev/null | head -n 1) in
    *" JobState=RUNNING "* | *" Reason=TimeLimit "*) return 1 ;;
    *" JobState="*) return 0 ;;
    *) return 1 ;; # nobody says
  esac
}

# slurm_end CODE: requeues a job that stopped early (75) and may go on, and leaves with the program's code.
slurm_end() {
  local code=$1 restarts=${SLURM_RESTART_COUNT:-0} id=$SLURM_JOB_ID
  # One task of an array has the array's own id as its job id, and that name requeues all of them.
  [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
  if [ "$code" -eq 75 ] && [ "${BATHYS_REQUEUE:-1}" = 1 ] && ! slurm_cancelled "$id" && [ "$restarts" -lt "${BATHYS_MAX_RESTARTS:-20}" ]; then
    printf 'event=requeue id=%s restart=%d\n' "$id" $((restarts + 1))
    scontrol requeue "$id"
  fi
  exit "$code"
}
