#!/usr/bin/env bash
# Installs the Debian packages the build needs, if any is missing. Needs root only then.
set -euo pipefail
declare -A provides=([clang]=clang [ld.lld]=lld [make]=make [python3]=python3 [flock]=util-linux [pkg-config]=pkg-config [objcopy]=binutils)
missing=()
for command in "${!provides[@]}"; do
  command -v "$command" >/dev/null || missing+=("${provides[$command]}")
done
# bindgen loads libclang at build time.
ls /usr/lib/llvm-*/lib/libclang.so* /usr/lib/x86_64-linux-gnu/libclang*.so* >/dev/null 2>&1 || missing+=(libclang-dev)
if ((${#missing[@]})); then
  echo "Installing from Debian: ${missing[*]}"
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
fi
command -v cargo >/dev/null || { echo "Baton needs a Rust toolchain (1.95 or later): https://rustup.rs"; exit 1; }
