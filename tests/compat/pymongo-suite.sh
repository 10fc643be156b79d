#!/usr/bin/env bash
# Runs pymongo's own test suite, as it ships in the source distribution on PyPI, against one member (a replica set rs0 of
# one, with enableTestCommands), and sorts the results by the rules in pymongo/classify.py.
#
#   tests/compat/pymongo-suite.sh              everything (some minutes)
#   tests/compat/pymongo-suite.sh -k bulk      arguments go to pytest
#
# Leaves $BATON_CACHE/pymongo-suite/results.xml and failures.txt. SUITE_SECONDS_MAX ends one test that hangs (60).
set -euo pipefail
cd "$(dirname "$0")"
. ../lib/binary.sh
. ../lib/venv.sh
. pymongo/sources.sh
code=0
# Some tests have MongoDB's port written into them; where it is taken they fail.
port=()
if ! (: </dev/tcp/127.0.0.1/27017) 2>/dev/null; then port=(--port 27017); fi
"$PYTHON" ../lib/with_member.py "${port[@]}" bash pymongo/run.sh "$suite" "$sources" "$@" || code=$?
"$PYTHON" pymongo/classify.py "$suite/results.xml" "$suite/failures.txt" || code=$?
exit "$code"
