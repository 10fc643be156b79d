#!/usr/bin/env bash
# Builds etcd's member and load, the peer of `make bench-set`, into $BATON_CACHE/peers. Needs Go 1.24; Debian's is taken if there
# is none.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v go >/dev/null; then
  echo "Installing from Debian: golang"
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq golang >/dev/null
fi
mkdir -p "$BATON_CACHE/peers"
GOFLAGS=-mod=readonly go build -o "$BATON_CACHE/peers/etcd-peer" .
