#!/usr/bin/env bash
# Kills a member under load and checks what is left; crash.py says how and what. Prints its seed; `--seed N` repeats it.
#
# tests/crash/run.sh          a hundred kills, among them one at least at every crash point (builds a binary for that)
# tests/crash/run.sh --short  six kills at random moments, of the binary that BATON names
# tests/crash/run.sh --at drop,freeing,index-build   a hundred kills at the points of drops and index builds
# What else is given goes to crash.py (`--help`).
set -euo pipefail
cd "$(dirname "$0")"
if [ "${1:-}" = --short ]; then
  shift
  set -- --kills 6 "$@"
else
  . ../../build/env.sh
  cargo build --locked -p baton --features crash-points
  # Its own name, so that nobody takes it for the binary without crash points.
  BATON="$CARGO_TARGET_DIR/debug/baton-crash-points"
  cp --remove-destination "$CARGO_TARGET_DIR/debug/baton" "$BATON"
  set -- --points "$@"
fi
. ../lib/binary.sh
. ../lib/venv.sh
exec "$PYTHON" crash.py "$@"
