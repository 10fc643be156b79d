#!/usr/bin/env bash
# The faults that take long, or need a binary with crash points (tests/cluster has the others). Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")"
. ../../build/env.sh
if [ -z "${BATON_SIM:-}" ]; then
  cargo build --locked -p baton-sim
  export BATON_SIM="$CARGO_TARGET_DIR/debug/baton-sim"
fi
cargo build --locked -p baton --features crash-points
# Its own name, so that nobody takes it for the binary without crash points.
BATON="${BATON_WITH_CRASH_POINTS:-$CARGO_TARGET_DIR/debug/baton-crash-points}"
[ -n "${BATON_WITH_CRASH_POINTS:-}" ] || cp --remove-destination "$CARGO_TARGET_DIR/debug/baton" "$BATON"
. ../lib/binary.sh
. ../lib/venv.sh
export PYTHONPATH="$(cd .. && pwd)/crash:$PYTHONPATH"
exec "$PYTHON" -m pytest -p no:cacheprovider -q . "$@"
