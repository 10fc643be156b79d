# The build's environment, sourced by the Makefile's recipes and by hands: `. build/env.sh`.
#
# Everything slow to make lives outside the checkout, below $BATON_CACHE (by default the user's cache folder), so that
# a second clone on the same machine starts warm: Cargo's target directory, and RocksDB and jemalloc as static libraries.

if [ -z "${BATON_CACHE:-}" ]; then
  BATON_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/baton"
fi
export BATON_CACHE
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$BATON_CACHE/target}"
# What `make test` draws at random it draws from a seed of the files committed, so that it says the same of the same files twice,
# whoever commits them. Luck that is new each time belongs to `make soak`. BATON_SEED=N sets it by hand.
if [ -z "${BATON_SEED:-}" ]; then
  BATON_SEED=$((16#$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --short=8 'HEAD^{tree}' 2>/dev/null | cut -c1-8 || true)1 % 1000000007))
fi
export BATON_SEED
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-$BATON_SEED}" FUZZ_SEED="${FUZZ_SEED:-$BATON_SEED}"
# build/rocksdb.sh and build/jemalloc.sh make the libraries and point these links at them; without the links Cargo compiles
# both itself, which is right but takes half an hour. Cargo is told the folders behind the links: it builds anew when their
# names change.
if [ -e "$BATON_CACHE/rocksdb/current/librocksdb.a" ]; then
  export ROCKSDB_LIB_DIR="$(readlink -f "$BATON_CACHE/rocksdb/current")"
  export ROCKSDB_INCLUDE_DIR="$ROCKSDB_LIB_DIR/include"
  export ROCKSDB_STATIC=1
  # The crate compiles a few C++ lines of its own beside the library; they must agree with it about run-time types.
  export CXXFLAGS="-fno-rtti"
fi
if [ -e "$BATON_CACHE/jemalloc/current/libjemalloc.a" ]; then
  export JEMALLOC_OVERRIDE="$(readlink -f "$BATON_CACHE/jemalloc/current")/libjemalloc.a"
fi
