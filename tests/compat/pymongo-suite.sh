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
suite="$BATON_CACHE/pymongo-suite"
version="$(sed -n 's/^pymongo.*==//p' ../requirements.txt)"
mkdir -p "$suite"
if [ ! -e "$suite/pymongo-$version/.unpacked" ]; then
  echo "fetching pymongo $version's source distribution"
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary pymongo \
    --dest "$suite" "pymongo==$version"
  tar -xzf "$suite/pymongo-$version.tar.gz" -C "$suite"
  # The suite is to import the installed driver, with its C extensions, not the sources beside it.
  rm -rf "$suite/pymongo-$version"/{pymongo,bson,gridfs}
  touch "$suite/pymongo-$version/.unpacked"
fi
if ! "$suite/venv/bin/python" -c 'import pytest_asyncio, pytest_timeout' 2>/dev/null; then
  python3 -m venv "$suite/venv"
  "$suite/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement pymongo/requirements.txt
fi
code=0
# Some tests have MongoDB's port written into them; where it is taken they fail.
port=()
if ! (: </dev/tcp/127.0.0.1/27017) 2>/dev/null; then port=(--port 27017); fi
"$PYTHON" ../lib/with_member.py "${port[@]}" bash pymongo/run.sh "$suite" "$suite/pymongo-$version" "$@" || code=$?
"$PYTHON" pymongo/classify.py "$suite/results.xml" "$suite/failures.txt" || code=$?
exit "$code"
