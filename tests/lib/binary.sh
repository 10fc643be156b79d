# The binary under test, sourced by the scripts beside it: checks BATON, or takes the one that `make build` leaves.

if [ -z "${BATON:-}" ]; then
  : "${BATON_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/baton}"
  BATON="${CARGO_TARGET_DIR:-$BATON_CACHE/target}/quick/baton"
fi
if [ ! -x "$BATON" ]; then
  echo "tests: there is no binary at $BATON; run \`make build\`, or set BATON to one" >&2
  exit 1
fi
export BATON
