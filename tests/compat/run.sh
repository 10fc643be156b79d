#!/usr/bin/env bash
# Official clients against one member: each tells a small story (connect, CRUD, bulk writes, indexes, aggregation,
# cursors, sessions, retryable writes, errors) and exits 0 if all of it came true.
#
#   tests/compat/run.sh            all clients
#   tests/compat/run.sh node go    those
#
# Packages come from the public registries, pinned, into $BATON_CACHE/clients; toolchains that are missing are installed
# (lib/toolchains.sh). The database tools are in no registry: where they are not on the PATH, they are said not to be tested, and
# counted as that; named on the command line, their absence is a failure, too.
set -uo pipefail
cd "$(dirname "$0")"
. ../lib/binary.sh || exit 1
. ../lib/venv.sh || exit 1
. ../lib/toolchains.sh
export CLIENTS="$BATON_CACHE/clients"
mkdir -p "$CLIENTS"
. ./install.sh

all=(pymongo mongosh node mongoose java go rust ycsb tools)
chosen=("$@")
[ ${#chosen[@]} -eq 0 ] && chosen=("${all[@]}")
summary=() failed=0 passed=0 untested=0

# The verdict: 0 passed, 77 the database tools are not there, anything else failed.
run_client() {
  local name=$1 code=0
  "install_$name" || code=$?
  if [ $code -eq 0 ]; then
    "$PYTHON" ../lib/with_member.py bash "clients/$name.sh" || code=$?
  fi
  case $code in
    0) summary+=("$name: passed"); passed=$((passed + 1)) ;;
    77) summary+=("$name: NOT TESTED, they are not on the PATH, and in no registry"); untested=$((untested + 1)) ;;
    *) summary+=("$name: failed"); failed=$((failed + 1)) ;;
  esac
}

for name in "${chosen[@]}"; do
  echo "== $name"
  run_client "$name"
done
echo
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed, $untested not tested"
# Who asks for something by name is not told that all is well without it.
[ $failed -eq 0 ] && { [ $untested -eq 0 ] || [ $# -eq 0 ]; }
