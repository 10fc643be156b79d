#!/usr/bin/env bash
# Rounds of fresh luck until told to stop, or for SOAK_MINUTES: simulated worlds, histories judged for linearizability, a minute of whole
# commands from a grammar, and the faults on real processes, a file of them each round. One line a round, with what was run so far. It stops at the first failure, and
# says where that round's output is; with it are seeds, and the data of a set that failed is kept (BATON_KEEP_FAILED).
#
# Takes the binary that BATON names, the one with crash points that BATON_WITH_CRASH_POINTS names, and baton-sim as BATON_SIM.
set -euo pipefail
cd "$(dirname "$0")"
. lib/venv.sh
world_seconds="${SOAK_WORLD_SECONDS:-60}" histories_each="${SOAK_HISTORIES:-6}"
kept="$(mktemp -d -t baton-soak-XXXXXX)"
# Kept for whoever reads of a failure. To be told to stop (130: Ctrl-C, 143: kill) is none, whatever the command under way says.
trap 'case $? in 0 | 130 | 143) rm -rf "$kept" ;; esac' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export BATON_KEEP_FAILED=1 PYTHONPATH="$PWD/crash:$PYTHONPATH"
files=(cluster/test_faults_*.py cluster/test_initial_sync.py faults/test_*.py)
worlds=0 histories=0 commands=0 faults=0 round=0
output="$kept/output"

# run WHAT COMMAND...: with its output kept, or the end.
run() {
  local what="$1"
  shift
  if ! "$@" >"$output" 2>&1; then
    tail -n 40 "$output"
    echo "soak: FAILED in round $((round + 1)), $what, after $worlds worlds, $histories histories, $commands commands and $faults faults; all of it: $output"
    exit 1
  fi
}

while [ -z "${SOAK_MINUTES:-}" ] || [ "$SECONDS" -lt $((SOAK_MINUTES * 60)) ]; do
  run "simulated worlds" "$BATON_SIM" --seconds "$world_seconds"
  worlds=$((worlds + $(sed -nE 's/^([0-9]+) worlds from seed.*/\1/p' "$output")))
  run "histories" linearizability/run.sh -histories "$histories_each"
  histories=$((histories + histories_each))
  run "commands" fuzz-commands/run.sh --seconds "${SOAK_COMMANDS_SECONDS:-60}"
  commands=$((commands + $(sed -nE 's/^fuzz-commands: .* rounds, ([0-9]+) commands.*/\1/p' "$output" | tail -n 1)))
  file="${files[$((round % ${#files[@]}))]}"
  binary="$BATON"
  [[ "$file" != faults/* ]] || binary="$BATON_WITH_CRASH_POINTS"
  BATON="$binary" run "$file" "$PYTHON" -m pytest -p no:cacheprovider -q "$file"
  faults=$((faults + $(sed -nE 's/^([0-9]+) passed.*/\1/p' "$output")))
  round=$((round + 1))
  echo "soak: round $round after $((SECONDS / 60)) min: $worlds worlds, $histories histories, $commands commands, $faults faults; all clean (last: $file)"
done
