#!/usr/bin/env bash
# The short tests with real processes: stories of one member and of sets (pytest), every command line of the documentation, a few
# seconds of whole commands, rounds of the crash test, histories of the linearizability test and differential tests. Their seeds are the
# committed files' (build/env.sh): what they find is a fault of the change at hand. What needs a toolchain that is missing installs it.
# `tests/run.sh -k NAME` and other arguments go to pytest, and then it is pytest alone. Longer: tests/compat,
# tests/differential, tests/crash, tests/faults, tests/linearizability.
set -euo pipefail
cd "$(dirname "$0")"
. ../build/env.sh
. lib/binary.sh
. lib/venv.sh
export PYTHONPATH="$PWD/fuzz-commands:$PYTHONPATH"
# What a machine cannot do is said at the end, with the reason. Most stories wait more than they compute, so two files go at a time.
together=(--numprocesses 2 --dist loadfile)
[ $# -eq 0 ] || together=()
"$PYTHON" -m pytest -p no:cacheprovider -q -rs "${together[@]}" cluster fuzz-commands "$@"
if [ $# -eq 0 ]; then
  docs/run.sh
  fuzz-commands/run.sh --short --seed "$BATON_SEED"
  crash/run.sh --short --seed "$BATON_SEED"
  linearizability/run.sh -histories 3 -seed "$BATON_SEED"
  differential/run.sh --seed "$BATON_SEED" --cases 1500
fi
