#!/usr/bin/env bash
# The short tests with real processes: stories of one member (pytest), and a few rounds of the crash test.
# `tests/run.sh -k NAME` and other arguments go to pytest, and then it is pytest alone. Longer: tests/compat,
# tests/differential, tests/crash.
set -euo pipefail
cd "$(dirname "$0")"
. lib/binary.sh
. lib/venv.sh
"$PYTHON" -m pytest -p no:cacheprovider -q cluster "$@"
if [ $# -eq 0 ]; then
  crash/run.sh --short
fi
