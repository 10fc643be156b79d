#!/usr/bin/env bash
# Builds the jemalloc that crate tikv-jemalloc-sys bundles into one static library, as a single translation unit.
#
# Why: the crate compiles every source three times and again for each profile, with debug information; that is some
# three and a half minutes of CPU each time, and this is forty seconds once.
#
# The result is kept in $BATON_CACHE/jemalloc/<key>, like RocksDB's (see build/rocksdb.sh); the key covers the settings
# that .cargo/config.toml compiles in. What is not part of the allocator's interface is local to the library, so that
# jemalloc's short names meet nobody else's.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/env.sh
. build/package.sh

recipe=1                       # raise it when this script changes what it makes
cc=${CC:-clang}
flags=(-std=gnu11 -w -g0 -O3 -funroll-loops -march=x86-64-v3 -fPIC -fvisibility=hidden -D_GNU_SOURCE -D_REENTRANT
       -DJEMALLOC_NO_PRIVATE_NAMESPACE)
settings=$(python3 -c 'import tomllib
print(tomllib.load(open(".cargo/config.toml", "rb"))["env"]["JEMALLOC_SYS_WITH_MALLOC_CONF"])')
package=$(package_dir tikv-jemalloc-sys)
key=$( { basename "$package"; "$cc" --version | head -1; echo "${flags[@]}" "$settings" $recipe; } | sha256sum | cut -c1-16)
home="$BATON_CACHE/jemalloc"
done_dir="$home/$key"
mkdir -p "$home"
exec 9>"$home/lock"
flock 9
if [ ! -f "$done_dir/libjemalloc.a" ]; then
  echo "jemalloc: compiling with $cc (once; kept in the cache afterwards)"
  scratch="$home/.building-$key"
  rm -rf "$scratch"
  mkdir -p "$scratch/made"
  cp -r "$package/jemalloc" "$scratch/source"
  cp "$package/configure/configure" "$scratch/source/"
  cd "$scratch/source"
  version=${package##*+}
  CC=$cc sh configure --with-version="$version" --with-malloc-conf="$settings" --disable-cxx --disable-doc --disable-stats \
    --disable-shared >configure.out 2>&1 || { tail -30 configure.out; exit 1; }
  # The list of sources is the makefile's.
  sed -n '/^C_SRCS :=/,/[^\\]$/p' Makefile | grep -o 'src/[a-z0-9_]*\.c' | sed 's/.*/#include "&"/' >all.c
  "$cc" "${flags[@]}" -I. -Iinclude -Isrc -c all.c -o all.o
  ld.lld -r all.o -o jemalloc.o
  objcopy --localize-hidden jemalloc.o
  ar rcs "$scratch/made/libjemalloc.a" jemalloc.o
  cd "$home"
  rm -rf "$done_dir"
  mv "$scratch/made" "$done_dir"
  rm -rf "$scratch"
fi
ln -sfn "$key" "$home/current"
