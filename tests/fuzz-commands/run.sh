#!/usr/bin/env bash
# Valid commands from a grammar, by many clients, on a set whose members are killed meanwhile; fuzz.py says how. Flags go to it.
#
# tests/fuzz-commands/run.sh                  ten seconds with a new seed, which is printed
# tests/fuzz-commands/run.sh --short          eight seconds of four clients (in `make test`, which gives `--seed`)
# tests/fuzz-commands/run.sh --minutes 60     rounds of half a minute, until one fails
# tests/fuzz-commands/run.sh --mutants        builds a binary with a fault in it, and passes if it is found
set -euo pipefail
cd "$(dirname "$0")"
mutants=()
case "${1:-}" in
  --short)
    shift
    set -- --seconds 8 --clients 4 "$@"
    ;;
  --minutes)
    set -- --seconds $(($2 * 60)) "${@:3}"
    ;;
  --mutants)
    shift
    . ../../build/env.sh
    cargo build --locked -p baton --features mutants
    # Its own name, so that nobody takes it for the right one.
    BATON="$CARGO_TARGET_DIR/debug/baton-mutants"
    cp --remove-destination "$CARGO_TARGET_DIR/debug/baton" "$BATON"
    mutants=(majority-at-once)
    ;;
esac
. ../lib/binary.sh
. ../lib/venv.sh
if [ ${#mutants[@]} -eq 0 ]; then
  exec "$PYTHON" fuzz.py "$@"
fi
output="$(mktemp)"
trap 'rm -f "$output"' EXIT
for mutant in "${mutants[@]}"; do
  echo "fuzz-commands: is \"$mutant\" found?"
  if BATON_MUTANT="$mutant" "$PYTHON" fuzz.py --seconds 300 "$@" >"$output" 2>&1 || ! grep -q '^the ledger: ' "$output"; then
    tail -n 40 "$output"
    echo "fuzz-commands: \"$mutant\" was not found"
    exit 1
  fi
  grep '^the ledger: ' "$output"
done
