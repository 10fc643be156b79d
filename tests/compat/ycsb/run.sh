#!/usr/bin/env bash
# YCSB's core workloads A to F over the official Java driver, inside tests/compat/run.sh, beside a member: loads a few
# records and runs a few operations of each. Every operation must succeed; the figures are YCSB's and prove nothing at
# this size (`baton bench` measures).
#
#   YCSB_RECORDS, YCSB_OPERATIONS, YCSB_THREADS   how much (1000, 2000, 8)
set -euo pipefail
cd "$(dirname "$0")"
records=${YCSB_RECORDS:-1000} operations=${YCSB_OPERATIONS:-2000} threads=${YCSB_THREADS:-8}

# The mixes of YCSB's own workloads/workload[a-f].
declare -A mix=(
  [a]="readproportion=0.5 updateproportion=0.5 requestdistribution=zipfian"
  [b]="readproportion=0.95 updateproportion=0.05 requestdistribution=zipfian"
  [c]="readproportion=1 updateproportion=0 requestdistribution=zipfian"
  [d]="readproportion=0.95 updateproportion=0 insertproportion=0.05 requestdistribution=latest"
  [e]="readproportion=0 updateproportion=0 scanproportion=0.95 insertproportion=0.05 requestdistribution=zipfian"
  [f]="readproportion=0.5 updateproportion=0 readmodifywriteproportion=0.5 requestdistribution=zipfian"
)

# ycsb PHASE WORKLOAD: one phase (-load or -t) of a workload in a database of its own.
ycsb() {
  local properties=() property
  for property in ${mix[$2]}; do properties+=(-p "$property"); done
  java -cp "$CLIENTS/java/classes/ycsb:$CLIENTS/java/lib/*" site.ycsb.Client "$1" -db BatonBinding -threads "$threads" \
    -p workload=site.ycsb.workloads.CoreWorkload -p recordcount="$records" -p operationcount="$operations" \
    -p mongodb.url="$BATON_URI" -p mongodb.database="ycsb_$2" "${properties[@]}"
}

# check OUTPUT PHASE WORKLOAD COUNT: YCSB's exit code does not tell that operations failed; its counts of outcomes do.
check() {
  "$PYTHON" check.py "$1" "$2 of workload $3" "$4"
}

output="$(mktemp)"
trap 'rm -f "$output"' EXIT
for workload in a b c d e f; do
  ycsb -load "$workload" >"$output" 2>&1 || { cat "$output"; exit 1; }
  check "$output" load "$workload" "$records"
  ycsb -t "$workload" >"$output" 2>&1 || { cat "$output"; exit 1; }
  check "$output" run "$workload" "$operations"
done
exec "$PYTHON" check_documents.py "$records"
