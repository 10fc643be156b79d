#!/usr/bin/env bash
# The short tests with real processes: stories of one member (pytest), a few rounds of the crash test,
# a few histories of the linearizability test, and some of the differential tests.
# `tests/run.sh -k NAME` and other arguments go to pytest, and then it is pytest alone. Longer: tests/compat,
# tests/differential, tests/crash, tests/faults, tests/linearizability.
set -euo pipefail
cd "$(dirname "$0")"
. lib/binary.sh
. lib/venv.sh
"$PYTHON" -m pytest -p no:cacheprovider -q cluster "$@"
if [ $# -eq 0 ]; then
  crash/run.sh --short
  linearizability/run.sh -histories 3
  # A fixed seed: what it finds is a fault of the change at hand. `make differential` draws a new one.
  differential/run.sh --seed 1 --cases 1500
fi
