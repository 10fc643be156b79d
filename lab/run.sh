#!/usr/bin/env bash
# One or all of the lab's experiments (`lab/run.sh uplink`, `lab/run.sh all`), or `lab/run.sh check`: the tests of its pure parts.
# `lab/run.sh draw NAME REPORTS FOLDER` draws the report of one experiment, or of `baton bench disturbance`.
# Experiments need root, iproute2 and version 1 of the cpu cgroups.
# The binary is BATON, or the optimised one of `make release`.
set -euo pipefail
cd "$(dirname "$0")/.."
lab="$PWD/lab"
: "${BATON_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/baton}"
cd tests
PYTHON="$BATON_CACHE/venv-lab/bin/python"
wanted="$(cat requirements.txt "$lab/requirements.txt")"
if [ "$wanted" != "$(cat "$BATON_CACHE/venv-lab/requirements.txt" 2>/dev/null || true)" ]; then
  echo "lab: installing matplotlib and pymongo into $BATON_CACHE/venv-lab"
  python3 -m venv "$BATON_CACHE/venv-lab"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --requirement requirements.txt --requirement "$lab/requirements.txt"
  printf '%s\n' "$wanted" > "$BATON_CACHE/venv-lab/requirements.txt"
fi
export PYTHONDONTWRITEBYTECODE=1
cd "$lab/.."
if [ "${1:-}" = check ]; then
  exec "$PYTHON" -m pytest -q -p no:cacheprovider lab
fi
if [ "${1:-}" = draw ]; then
  exec "$PYTHON" -m lab.pictures "${@:2}"
fi
export BATON="${BATON:-${CARGO_TARGET_DIR:-$BATON_CACHE/target}/release/baton}"
. tests/lib/binary.sh
exec "$PYTHON" -m lab "$@"
