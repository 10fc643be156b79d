#!/usr/bin/env bash
# Inside tests/compat/pymongo-suite.sh, beside a member: runs the suite; inside pymongo-set.sh, beside a set, what
# SUITE_TESTS names. A failed test is not a failure of this script: the rules of classify.py decide.
set -uo pipefail
suite=$1 sources=$2
shift 2
plugins="$PWD/pymongo"
cd "$sources"
export DB_IP="$BATON_HOST" DB_PORT="$BATON_PORT" PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$plugins" WATCH_FILE="$suite/watch.txt"
rm -f "$suite/results.xml" "$WATCH_FILE"
# -p no:cacheprovider: nothing is kept in the sources; the asynchronous twins are the same tests a second time.
mapfile -t tests < <(tr -s ' ' '\n' <<<"${SUITE_TESTS:-test}" | sed '/^$/d')
"${SUITE_VENV:-$suite/venv}/bin/python" -m pytest "${tests[@]}" --ignore=test/asynchronous -p no:cacheprovider -p watch -q --no-header --tb=short \
  -o junit_family=xunit2 --junitxml="$suite/results.xml" --timeout="${SUITE_SECONDS_MAX:-60}" "$@" \
  >"$suite/output.txt" 2>&1
tail -1 "$suite/output.txt"
[ -s "$suite/results.xml" ]
