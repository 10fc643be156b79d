# The Python of the tests, sourced by the scripts beside it: sets PYTHON to an environment with the pinned packages.
#
# Lives in $BATON_CACHE/venv. Warm, this is one comparison of two files.

: "${BATON_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/baton}"
export BATON_CACHE
tests_folder="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
PYTHON="$BATON_CACHE/venv/bin/python"
if ! cmp -s "$tests_folder/requirements.txt" "$BATON_CACHE/venv/requirements.txt"; then
  mkdir -p "$BATON_CACHE"
  (
    flock 9
    if ! cmp -s "$tests_folder/requirements.txt" "$BATON_CACHE/venv/requirements.txt"; then
      echo "tests: installing pymongo and pytest into $BATON_CACHE/venv"
      . "$tests_folder/lib/toolchains.sh"
      need venv || exit 1
      rm -rf "$BATON_CACHE/venv"
      python3 -m venv "$BATON_CACHE/venv" || exit 1
      "$PYTHON" -m pip install --quiet --disable-pip-version-check --requirement "$tests_folder/requirements.txt"
      cp "$tests_folder/requirements.txt" "$BATON_CACHE/venv/requirements.txt"
    fi
  ) 9>"$BATON_CACHE/venv.lock"
fi
export PYTHON
export PYTHONPATH="$tests_folder/lib${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONDONTWRITEBYTECODE=1
