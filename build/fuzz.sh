#!/bin/bash
# Runs every fuzz target for SECONDS each: with cargo-fuzz, guided by coverage, where FUZZ_GUIDED is set and it and a nightly
# toolchain are installed; otherwise over seeds, kept inputs and plain mutations. `build/fuzz.sh SECONDS [NAME…]`
set -euo pipefail
cd "$(dirname "$0")/.."
. build/env.sh
seconds="${1:?usage: build/fuzz.sh SECONDS [NAME…]}"
shift
cd fuzz
# Small inputs overflow what a release build would wrap, so the plain runner is a debug build, like the tests.
cargo build --quiet --bin mutate
mutate="$CARGO_TARGET_DIR/debug/mutate"
if [ -z "${FUZZ_GUIDED:-}" ] || ! cargo +nightly fuzz --version >/dev/null 2>&1; then
  exec "$mutate" "$seconds" "$@"
fi
"$mutate" seeds corpus
names=("$@")
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(cargo +nightly fuzz list)
# The kept inputs and seeds first, in the build that checks overflow.
"$mutate" 0 "${names[@]}"
for name in "${names[@]}"; do
  mkdir -p "corpus/$name" "regressions/$name"
  cargo +nightly fuzz run --features libfuzzer "$name" "corpus/$name" "regressions/$name" -- \
    -max_total_time="$seconds" -max_len=4096 -timeout=5 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0
done
echo "${#names[@]} passed, 0 failed"
