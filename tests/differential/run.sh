#!/usr/bin/env bash
# Random queries, pipelines and updates on Baton and on an independent implementation (npm's mingo), and on Baton with and
# without indexes; main.mjs says how. Prints its seed; `--seed N` repeats it, `--cases N` makes it shorter or longer.
#
# Node and npm are installed if they are missing (lib/toolchains.sh). Packages go to $BATON_CACHE/differential, once.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib/binary.sh
. ../lib/venv.sh
. ../lib/toolchains.sh
need node
export PACKAGES="$BATON_CACHE/differential"
if ! cmp -s package.json "$PACKAGES/installed.json"; then
  echo "differential: installing mingo and the driver into $PACKAGES"
  mkdir -p "$PACKAGES"
  cp package.json "$PACKAGES/"
  (cd "$PACKAGES" && npm install --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null)
  cp package.json "$PACKAGES/installed.json"
fi
exec "$PYTHON" ../lib/with_member.py bash -c 'exec node main.mjs "$BATON_URI" "$@"' main.mjs "$@"
