# Sourced beside lib/venv.sh: pymongo's source distribution with its tests, and an environment to run them in.
# Sets suite, version and sources.
suite="$BATON_CACHE/pymongo-suite"
version="$(sed -n 's/^pymongo.*==//p' ../requirements.txt)"
sources="$suite/pymongo-$version"
mkdir -p "$suite"
if [ ! -e "$sources/.unpacked" ]; then
  echo "fetching pymongo $version's source distribution"
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary pymongo \
    --dest "$suite" "pymongo==$version"
  tar -xzf "$suite/pymongo-$version.tar.gz" -C "$suite"
  # The suite is to import the installed driver, with its C extensions, not the sources beside it.
  rm -rf "$sources"/{pymongo,bson,gridfs}
  touch "$sources/.unpacked"
fi
if ! "$suite/venv/bin/python" -c 'import pytest_asyncio, pytest_timeout' 2>/dev/null; then
  python3 -m venv "$suite/venv"
  "$suite/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement pymongo/requirements.txt
fi
