#!/usr/bin/env bash
# Official clients against one member: each tells a small story (connect, CRUD, bulk writes, indexes, aggregation,
# cursors, sessions, retryable writes, errors) and exits 0 if all of it came true.
#
#   tests/compat/run.sh            all clients
#   tests/compat/run.sh node go    those
#
# Packages come from the public registries, pinned, into $BATON_CACHE/clients. What a machine does not have (a toolchain,
# the database tools, which are in no registry) is said plainly and is not a failure; what is there must pass.
set -uo pipefail
cd "$(dirname "$0")"
. ../lib/binary.sh || exit 1
. ../lib/venv.sh || exit 1
export CLIENTS="$BATON_CACHE/clients"
mkdir -p "$CLIENTS"
. ./install.sh

all=(pymongo mongosh node mongoose java go rust ycsb tools)
chosen=("$@")
[ ${#chosen[@]} -eq 0 ] && chosen=("${all[@]}")
summary=() failed=0 passed=0 skipped=0

# The verdict: 0 passed, 77 not there, anything else failed.
run_client() {
  local name=$1 code=0
  "install_$name" || code=$?
  if [ $code -eq 0 ]; then
    "$PYTHON" ../lib/with_member.py bash "clients/$name.sh" || code=$?
  fi
  case $code in
    0) summary+=("$name: passed"); passed=$((passed + 1)) ;;
    77) summary+=("$name: not on PATH"); skipped=$((skipped + 1)) ;;
    *) summary+=("$name: failed"); failed=$((failed + 1)) ;;
  esac
}

for name in "${chosen[@]}"; do
  echo "== $name"
  run_client "$name"
done
echo
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
