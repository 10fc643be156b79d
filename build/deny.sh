#!/usr/bin/env bash
# Checks by deny.toml what Baton and its fuzz targets are built from: licences, sources, banned and duplicate versions. That needs no
# network. `build/deny.sh advisories` looks for known faults of the dependencies, too, in a database that it fetches.
set -euo pipefail
cd "$(dirname "$0")/.."
. build/env.sh
. tests/lib/toolchains.sh
need deny
if [ "${1:-}" = advisories ]; then
  exec cargo-deny --log-level error check --hide-inclusion-graph
fi
for manifest in Cargo.toml fuzz/Cargo.toml; do
  echo -n "deny: $manifest: "
  cargo fetch --quiet --locked --manifest-path "$manifest"
  cargo-deny --frozen --log-level error --config "$PWD/deny.toml" --manifest-path "$manifest" check --hide-inclusion-graph \
    bans licenses sources
done
