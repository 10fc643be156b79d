# The build's environment, sourced by the Makefile's recipes and by hands: `. build/env.sh`.
#
# Everything slow to make lives outside the checkout, below $BATON_CACHE (by default the user's cache folder), so that
# a second clone on the same machine starts warm: Cargo's target directory, and RocksDB as a static library.

if [ -z "${BATON_CACHE:-}" ]; then
  BATON_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/baton"
fi
export BATON_CACHE
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$BATON_CACHE/target}"
# build/rocksdb.sh makes the library and points this link at it; without the link Cargo compiles RocksDB itself,
# which is right but takes half an hour.
if [ -e "$BATON_CACHE/rocksdb/current/librocksdb.a" ]; then
  export ROCKSDB_LIB_DIR="$BATON_CACHE/rocksdb/current"
  export ROCKSDB_INCLUDE_DIR="$BATON_CACHE/rocksdb/current/include"
  export ROCKSDB_STATIC=1
  # The crate compiles a few C++ lines of its own beside the library; they must agree with it about run-time types.
  export CXXFLAGS="-fno-rtti"
fi
