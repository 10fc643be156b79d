#!/usr/bin/env bash
# The container image of packaging/Containerfile: a member in it is a set, keeps what it has acknowledged when it is killed, stops when it is
# asked to, and may set niceness where the container lets it, and says so where not; image.py asserts that.
#
# tests/image/run.sh   CONTAINERS is podman or docker (with flags), IMAGE the image: `make test-image` builds it and says both.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib/venv.sh
: "${CONTAINERS:?podman or docker is needed: CONTAINERS}" "${IMAGE:?the name of an image is needed: IMAGE}"
exec "$PYTHON" image.py
