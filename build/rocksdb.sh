#!/usr/bin/env bash
# Builds the RocksDB sources that crate rust-librocksdb-sys bundles into one static library, as a unity build.
#
# Why: compiled file by file, as the crate does it, RocksDB costs some 40 minutes of CPU; its 340 sources glued into a
# score of large translation units cost about 9, because each header is then parsed a score of times, not hundreds.
# What Baton does not use (transactions, backups, other databases on top of it) is left out, a twelfth of the work. RocksDB's
# C interface still names it, in functions that nobody calls and the linker therefore drops: who calls one of them meets
# an undefined symbol, and takes its folder out of the list below.
#
# The result is kept in $BATON_CACHE/rocksdb/<key>, where the key covers the crate's version, the compiler, the flags
# and the recipe's number; a version bump in Cargo.lock therefore builds anew and leaves the old library alone. The link
# `current` names the one that build/env.sh hands to Cargo. A library is complete or absent: it is made in a scratch
# folder and renamed; an interrupted build goes on from the units it had; a lock lets only one run at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/env.sh
. build/package.sh

recipe=2                       # raise it when this script changes what it makes
units=24                       # translation units: fewer parse less, more spread better over cores
unused="agg_merge backup blob_db cache_dump_load cassandra copy_engine env_mirror fault_injection option_change_migration
        persistent_cache secondary_index simulator_cache sorted_run_builder transactions/lock transactions/optimistic
        transactions/pessimistic transactions/transaction transactions/write"   # below utilities/
cxx=${CXX:-clang++}
jobs=${JOBS:-$(nproc)}
flags=(-O2 -g0 -march=x86-64-v3 -mpclmul -std=c++20 -fPIC -fno-rtti -ffunction-sections -fdata-sections -fno-builtin-memcmp
       -w -include cstdint -DNDEBUG=1
       -DLZ4=1 -DOS_LINUX -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX
       -DROCKSDB_SCHED_GETCPU_PRESENT -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DROCKSDB_FALLOCATE_PRESENT
       -DROCKSDB_RANGESYNC_PRESENT -DROCKSDB_PTHREAD_ADAPTIVE_MUTEX -DROCKSDB_BACKTRACE
       -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION)

sys=$(package_dir rust-librocksdb-sys)
lz4=$(package_dir lz4-sys)
lz4=$(dirname "$(find "$lz4" -name lz4.h | head -1)")
key=$( { basename "$sys"; basename "$(package_dir lz4-sys)"; "$cxx" --version | head -1; echo "${flags[@]}" $units $unused $recipe; } |
       sha256sum | cut -c1-16)
home="$BATON_CACHE/rocksdb"
done_dir="$home/$key"
mkdir -p "$home"
exec 9>"$home/lock"
flock 9
if [ ! -f "$done_dir/librocksdb.a" ]; then
  scratch="$home/.building-$key"
  mkdir -p "$scratch/units" "$scratch/objects"
  # Contiguous slices of about equal size: neighbours in the list are neighbours in the tree and share their headers.
  SYS="$sys" UNITS=$units UNUSED="$unused" OUT="$scratch/units" python3 - <<'PY'
import os
root, count, out = os.environ["SYS"], int(os.environ["UNITS"]), os.environ["OUT"]
names = [n for n in open(f"{root}/rocksdb_lib_sources.txt").read().split() if os.path.exists(f"{root}/rocksdb/{n}")]
unused = tuple(f"utilities/{u}" for u in os.environ["UNUSED"].split())
names = [n for n in names if not n.startswith(unused)]
# db/c.cc defines its own handles in the global namespace, so it stands alone.
alone = [n for n in names if n == "db/c.cc"]
rest = [n for n in names if n not in alone]
size = {n: os.path.getsize(f"{root}/rocksdb/{n}") for n in rest}
total, seen, units = sum(size.values()), 0, [[] for _ in range(count)]
for n in rest:
    units[min(count - 1, seen * count // total)].append(n)
    seen += size[n]
def write(name, includes):
    with open(f"{out}/{name}.cc", "w") as f:
        f.writelines(f'#include "{i}"\n' for i in includes)
for i, u in enumerate(units):
    if u:
        write(f"unit{i:02}", u)
for n in alone:
    write("alone_" + n.replace("/", "_")[:-3], [n])
write("build_version", [f"{root}/build_version.cc"])
PY
  total=$(ls "$scratch/units" | wc -l)
  echo "RocksDB: compiling $total units with $cxx, $jobs at a time (once; kept in the cache afterwards)"
  export scratch sys lz4 cxx total
  export FLAGS="${flags[*]}"
  compile_one() {
    name=$(basename "$1" .cc)
    [ -f "$scratch/objects/$name.o" ] && return 0
    if ! $cxx $FLAGS -I"$sys" -I"$sys/rocksdb" -I"$sys/rocksdb/include" -I"$lz4" -c "$1" \
        -o "$scratch/objects/$name.partial" 2>"$scratch/objects/$name.err"; then
      echo "RocksDB: unit $name does not compile:"; head -30 "$scratch/objects/$name.err"; return 1
    fi
    mv "$scratch/objects/$name.partial" "$scratch/objects/$name.o"
    echo "RocksDB: $(ls "$scratch"/objects/*.o | wc -l) of $total units"
  }
  export -f compile_one
  ls -S "$scratch"/units/*.cc | xargs -P "$jobs" -I{} bash -c 'compile_one "$@"' _ {}
  rm -f "$scratch/librocksdb.a"
  ar rcs "$scratch/librocksdb.a" "$scratch"/objects/*.o
  cp -r "$sys/rocksdb/include" "$scratch/include"
  rm -rf "$scratch/units" "$scratch/objects"
  rm -rf "$done_dir"
  mv "$scratch" "$done_dir"
fi
ln -sfn "$key" "$home/current"
