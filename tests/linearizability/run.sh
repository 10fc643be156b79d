#!/usr/bin/env bash
# Histories from sets of real members under random faults, judged by Porcupine; main.go says how. Flags go to it.
#
# tests/linearizability/run.sh [-histories N] [-parallel N] [-seconds S] [-seed N] [-verbose]   of the binary that BATON names
# tests/linearizability/run.sh --mutants   builds a binary with faults in it, and passes if they are found
#
# Go is installed if it is missing (lib/toolchains.sh).
set -euo pipefail
cd "$(dirname "$0")"
. ../lib/toolchains.sh
need go
if [ "${1:-}" = --mutants ]; then
  shift
  . ../../build/env.sh
  cargo build --locked -p baton --features mutants
  # Its own name, so that nobody takes it for the right one.
  BATON="$CARGO_TARGET_DIR/debug/baton-mutants"
  cp --remove-destination "$CARGO_TARGET_DIR/debug/baton" "$BATON"
  mutants=(majority-at-once)
fi
. ../lib/binary.sh
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cc -O1 -shared -fPIC -o "$work/faults.so" ../lib/faults.c -ldl
GOFLAGS=-mod=readonly go build -o "$work/linearizability" .
export BATON_FAULTS_LIBRARY="$work/faults.so"
for mutant in "${mutants[@]:-}"; do
  if [ -n "$mutant" ]; then
    echo "linearizability: is \"$mutant\" found?"
    "$work/linearizability" -mutant "$mutant" -expect-violation -histories 30 "$@"
  else
    "$work/linearizability" "$@"
  fi
done
