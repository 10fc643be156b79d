#!/usr/bin/env bash
# Runs every command line of README.md and docs/*.md on a set of three members, in order, and once more after a fail-over; main.py
# says how, and declared.py which it leaves out and why. Takes the binary that BATON names.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib/binary.sh
. ../lib/venv.sh
. ../lib/toolchains.sh
need node
export CLIENTS="$BATON_CACHE/clients"
mkdir -p "$CLIENTS"
(cd ../compat && . ./install.sh && install_mongosh)
export PATH="$CLIENTS/node/node_modules/.bin:$PATH"
exec "$PYTHON" main.py "$@"
