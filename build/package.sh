# Sourced by what builds a C or C++ library that a crate bundles: where that crate's sources are.
cargo fetch --locked --quiet
package_dir() { # the source folder of one locked package
  cargo metadata --format-version 1 --locked --offline |
    python3 -c 'import json,sys
name=sys.argv[1]
print(next(p["manifest_path"].rsplit("/",1)[0] for p in json.load(sys.stdin)["packages"] if p["name"]==name))' "$1"
}
