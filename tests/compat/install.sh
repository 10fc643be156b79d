# Installs each client's packages into $CLIENTS, once for each version of the file that pins them; sourced by run.sh.
#
# Toolchains that are missing are installed (lib/toolchains.sh). Only the database tools' installer returns 77: they are in no
# registry.

# unless_current STAMP FILE COMMAND…: runs the command unless it succeeded with this very content of FILE before.
unless_current() {
  local stamp="$CLIENTS/$1.stamp" pins=$2
  shift 2
  cmp -s "$pins" "$stamp" && return 0
  "$@" && cp "$pins" "$stamp"
}

on_path() {
  command -v "$1" >/dev/null
}

npm_install() {
  echo "installing mongosh, the Node driver, mongoose and mingo into $CLIENTS/node"
  mkdir -p "$CLIENTS/node"
  cp node/package.json "$CLIENTS/node/"
  # The version of one transitive package may move; those that are named may not.
  (cd "$CLIENTS/node" && npm install --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null)
}

maven_install() {
  echo "installing the Java driver and YCSB's core into $CLIENTS/java"
  mkdir -p "$CLIENTS/java"
  cp java/pom.xml "$CLIENTS/java/"
  (cd "$CLIENTS/java" && rm -rf lib && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="$CLIENTS/java/lib")
}

compile_java() {
  rm -rf "$CLIENTS/java/classes/$1"
  javac -nowarn -cp "$CLIENTS/java/lib/*" -d "$CLIENTS/java/classes/$1" "$2"
}

install_pymongo() { :; }
install_mongosh() { install_node; }
install_mongoose() { install_node; }
install_node() {
  need node || return 1
  unless_current node node/package.json npm_install
}
install_java_packages() {
  need java || return 1
  unless_current java java/pom.xml maven_install
}
install_java() {
  install_java_packages || return
  unless_current java-story java/Story.java compile_java story java/Story.java
}
install_ycsb() {
  install_java_packages || return
  unless_current java-ycsb ycsb/BatonBinding.java compile_java ycsb ycsb/BatonBinding.java
}
install_go() {
  need go || return 1
  (cd go && GOFLAGS=-mod=readonly go build -o "$CLIENTS/go-story" .)
}
install_rust() {
  (cd rust && cargo build --quiet --locked --target-dir "$CLIENTS/rust-target")
}
install_tools() {
  for tool in mongodump mongorestore mongoexport mongoimport mongostat mongotop; do
    on_path $tool || { echo "$tool is not on PATH"; missing_tools=1; }
  done
  [ -z "${missing_tools:-}" ] || return 77
}
