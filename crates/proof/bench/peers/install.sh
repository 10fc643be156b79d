#!/usr/bin/env bash
# Brings the peers of `make bench-one` to this machine: Redis from Debian, mongo-java-server's jars from Maven Central
# into $BATON_CACHE/peers/java, beside H2Server.java, which the JVM compiles when it starts.
set -euo pipefail
cd "$(dirname "$0")"
declare -A provides=([redis-server]=redis-server [java]=default-jdk-headless [javac]=default-jdk-headless [mvn]=maven)
missing=()
for command in "${!provides[@]}"; do
  command -v "$command" >/dev/null || missing+=("${provides[$command]}")
done
if ((${#missing[@]})); then
  echo "Installing from Debian: ${missing[*]}"
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
fi
jars="$BATON_CACHE/peers/java"
mkdir -p "$jars"
if ! cmp -s pom.xml "$jars/pom.xml"; then
  echo "Fetching mongo-java-server and H2 from Maven Central"
  rm -f "$jars"/*.jar
  mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$jars"
  cp pom.xml "$jars/pom.xml"
fi
cp H2Server.java "$jars/H2Server.java"
