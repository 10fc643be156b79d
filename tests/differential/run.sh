#!/usr/bin/env bash
# Random queries, pipelines and updates on Baton and on an independent implementation (npm's mingo), and on Baton with and
# without indexes; main.mjs says how. Prints its seed; `--seed N` repeats it, `--cases N` makes it shorter or longer.
#
# Needs node 20 and npm; says so and passes where they are not. Packages go to $BATON_CACHE/differential, once.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib/binary.sh
. ../lib/venv.sh
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "differential: skipped, there is no node and npm on the PATH (node 20 or newer is needed)"
  exit 0
fi
export PACKAGES="$BATON_CACHE/differential"
if ! cmp -s package.json "$PACKAGES/installed.json"; then
  echo "differential: installing mingo and the driver into $PACKAGES"
  mkdir -p "$PACKAGES"
  cp package.json "$PACKAGES/"
  (cd "$PACKAGES" && npm install --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null)
  cp package.json "$PACKAGES/installed.json"
fi
exec "$PYTHON" ../lib/with_member.py bash -c 'exec node main.mjs "$BATON_URI" "$@"' main.mjs "$@"
