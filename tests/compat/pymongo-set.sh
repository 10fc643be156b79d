#!/usr/bin/env bash
# Runs those of pymongo's own tests that are about replica sets (discovery and monitoring, retryable reads and writes, read and
# write concerns, sessions, causal consistency, read preferences) against a set of three members, as pymongo-suite.sh runs
# all of them against one.
#
#   tests/compat/pymongo-set.sh              these modules (some minutes)
#   tests/compat/pymongo-set.sh -k retry     arguments go to pytest
#
# Leaves $BATON_CACHE/pymongo-set/results.xml and failures.txt. SUITE_SECONDS_MAX ends one test that hangs (60).
set -euo pipefail
cd "$(dirname "$0")"
. ../lib/binary.sh
. ../lib/venv.sh
. pymongo/sources.sh
export SUITE_VENV="$suite/venv"
modules="causal_consistency client connections_survive_primary_stepdown_spec crud_unified discovery_and_monitoring heartbeat_monitoring hello_latched
  max_staleness monitor monitoring read_concern read_preferences read_write_concern_spec replica_set_reconfig retryable_reads retryable_reads_unified
  retryable_writes retryable_writes_unified sdam_monitoring_spec server_selection server_selection_in_window server_selection_rtt session
  sessions_unified streaming_protocol topology write_concern"
SUITE_TESTS="$(printf 'test/test_%s.py ' $modules)"
export SUITE_TESTS
results="$BATON_CACHE/pymongo-set"
mkdir -p "$results"
code=0
"$PYTHON" ../lib/with_set.py bash pymongo/run.sh "$results" "$sources" "$@" || code=$?
"$PYTHON" pymongo/classify.py "$results/results.xml" "$results/failures.txt" || code=$?
exit "$code"
