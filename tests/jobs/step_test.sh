#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Signals to a batch script around its step, with a stand-in for srun: a stop that is asked for at any moment is a stop (75), and
# reaches the program that runs.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

cat > "$work/srun" <<'EOF_SRUN'
#!/usr/bin/env bash
: > "$STAND_IN.begun"
case $* in
  *" starts") exec sleep 10 ;;  # no handler yet
  *" runs") trap 'exit 75' USR1 TERM; : > "$STAND_IN.ready"; while :; do sleep 0.05; done ;;
  *" dies") kill -TERM $$ ;;
  *) exit "${*: -1}" ;;
esac
EOF_SRUN
chmod +x "$work/srun"

# run WANTED SRUN [WHEN SIGNAL]: a job whose srun does as SRUN says, asked for a stop by SIGNAL before its step (now), or when srun
# has made the file WHEN.
run() {
  local wanted=$1 ask='' code
  case ${3:-} in
    '') ;;
    now) ask="kill -$4 \$\$" ;;
    *) ask="(while [ -d '$work' ] && [ ! -e '$work/stand-in.$3' ]; do sleep 0.05; done; sleep 0.2; kill -$4 \$\$) &" ;;
  esac
  rm -f "$work"/stand-in.*
  cat > "$work/job.sh" <<EOF_JOB
source "$root/jobs/lib.sh"
slurm_begin x
$ask
slurm_step "$2"
slurm_end \$?
EOF_JOB
  env STAND_IN="$work/stand-in" SLURM_JOB_ID=1 BATHYS_REQUEUE=0 BATHYS_PROGRAM=/bin/true PATH="$work:$PATH" timeout 30 bash "$work/job.sh" > "$work/out" 2>&1
  code=$?
  [ "$code" -eq "$wanted" ] && return 0
  printf 'srun that %s, %s %s: the job ended with %s, %s was wanted\n' "$2" "${4:-no signal}" "${3:-}" "$code" "$wanted"
  cat "$work/out"
  failed=1
}

for signal in USR1 TERM; do
  run 75 runs now "$signal"
  if [ -e "$work/stand-in.begun" ]; then
    echo "a step was begun although a stop had been asked for"
    failed=1
  fi
  run 75 starts begun "$signal"
  run 75 runs ready "$signal"
done
run 143 dies  # nobody asked for a stop
for code in 0 2 76; do run "$code" "$code"; done
exit "$failed"
