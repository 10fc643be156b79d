#!/usr/bin/env python3
"""Compares the house with what ARCHITECTURE.md states: the law of imports, purity, and who asserts the invariants.

The law is the fenced block after the line `<!-- law -->`: one floor a line, lowest first, `floor: crate crate …`; a
crate may import from floors below its own, and from what stands in brackets behind it.

Every crate on the floors of PURE has a clippy.toml that bans what would make it depend on more than its arguments.

Every invariant ends in brackets that name what asserts it, "`file`: `name`, `name`; …"; the file has that name in it. Files are
below the root, or below crates/.

Commands, storage and what carries plans out start no threads: the node does, and has it done for them.

`/proc` and `/sys` are read by the crate `machine` alone; the process is ended by `node`, by storage when a write failed, and by a panic that
would leave others waiting.

The tables of spec/README.md list the golden scripts of the protocol, of index builds and of followers, all of them and no others.
"""
import json
import pathlib
import re
import subprocess
import sys

text = open("ARCHITECTURE.md", encoding="utf-8").read()
block = re.search(r"<!-- law -->\s*```\n(.*?)```", text, re.S)
if not block:
    sys.exit("ARCHITECTURE.md has no law of imports (a fenced block after <!-- law -->)")
floor_of, allowed_beside = {}, {}
for height, line in enumerate(block.group(1).strip().splitlines()):
    floor, crates = line.split(":", 1)
    for name, beside in re.findall(r"(\S+?)(?:\[([^\]]*)\])?(?:\s|$)", crates.strip()):
        floor_of[name] = (height, floor.strip())
        allowed_beside[name] = set((beside or "").split(","))

metadata = json.loads(subprocess.check_output(
    ["cargo", "metadata", "--format-version", "1", "--locked", "--no-deps"], text=True))
faults = []
names = {package["name"] for package in metadata["packages"]}
for package in metadata["packages"]:
    name = package["name"]
    short = package["manifest_path"].split("/")[-2]
    floor_folder = package["manifest_path"].split("/")[-3]
    if short not in floor_of:
        faults.append(f"{name}: ARCHITECTURE.md names no floor for it")
        continue
    height, floor = floor_of[short]
    if floor != floor_folder:
        faults.append(f"{name}: lies in {floor_folder}/, belongs to {floor} by ARCHITECTURE.md")
    for dependency in package["dependencies"]:
        if dependency["name"] not in names or dependency["kind"] == "dev":
            continue
        other = dependency["path"].split("/")[-1]
        if other not in floor_of or floor_of[other][0] < height:
            continue
        if other in allowed_beside[short]:
            continue
        faults.append(f"{name} imports {dependency['name']}, which is not on a floor below {floor}")
for name in floor_of:
    if not any(package["manifest_path"].split("/")[-2] == name for package in metadata["packages"]):
        faults.append(f"ARCHITECTURE.md names {name}, which does not exist")

# What these floors may not do, and what bans it.
PURE = {"vocabulary", "brains"}
BANNED = ["std::time::Instant::now", "std::time::SystemTime::now", "std::thread::spawn", "std::thread::sleep", "std::env::var",
          "std::net::TcpStream", "std::fs::File"]
for name, (_, floor) in floor_of.items():
    if floor not in PURE:
        continue
    rules = pathlib.Path("crates", floor, name, "clippy.toml")
    banned = rules.read_text(encoding="utf-8") if rules.exists() else ""
    faults += [f"{rules} does not ban {path}, and {floor} is pure" for path in BANNED if f'path = "{path}"' not in banned]
    manifest = pathlib.Path("crates", floor, name, "Cargo.toml").read_text(encoding="utf-8")
    used = re.search(r"^\[dependencies\]\n(.*?)(?=^\[|\Z)", manifest, re.S | re.M)
    acting = re.findall(r"^(getrandom|fastrand|tokio|socket2|rustix|nix|libc)\b", used.group(1) if used else "", re.M)
    faults += [f"{name} depends on {crate}, and {floor} is pure" for crate in acting]
    # Chance comes in as an argument, too.
    for source in pathlib.Path("crates", floor, name, "src").rglob("*.rs"):
        if re.search(r"\b(thread_rng|rand::rng|rand::random|from_os_rng|SysRng|OsRng)\b", source.read_text(encoding="utf-8")):
            faults.append(f"{source} draws at random, and {floor} is pure")

# What a member knows of its machine it knows by one crate; where it is to start itself again, it names itself by `/proc/self/exe`.
for source in pathlib.Path("crates").glob("*/*/src/**/*.rs"):
    floor, crate = source.parts[1:3]
    if crate == "machine" or floor == "proof":
        continue
    product = source.read_text(encoding="utf-8").split("#[cfg(test)]")[0]
    if re.search(r'"/(proc/(?!self/exe")|sys/)', product):
        faults.append(f"{source} reads of the machine, which is baton-machine's")
    may_end = crate == "node" or source.name in ("machine.rs", "unwind.rs")
    if not may_end and re.search(r"\b(process::(exit|abort)|low_level::exit)\b", product):
        faults.append(f"{source} ends the process, which is baton-node's")

    is_of_tests = re.search(r"(tests?|testing)\.rs$|/tests/", str(source))
    if crate in ("commands", "storage", "execution") and not is_of_tests and re.search(r"\bthread::(spawn|scope|Builder)\b", product):
        faults.append(f"{source} starts a thread, which is baton-node's")

section = re.search(r"^## Invariants\n(.*?)(?=^## |^The format on disk)", text, re.S | re.M)
claims = re.split(r"^- ", section.group(1), flags=re.M)[1:] if section else []
for claim in claims:
    told = re.search(r"\[([^][]*)\]\s*$", claim)
    short = " ".join(claim.split())[:70]
    if not told:
        faults.append(f"an invariant names nothing that asserts it: {short}")
        continue
    for part in told.group(1).split(";"):
        file, *asserting = re.findall(r"`([^`]+)`", part)
        path = next((p for p in (pathlib.Path(file), pathlib.Path("crates", file)) if p.is_file()), None)
        if path is None:
            faults.append(f"{file} is not there, and is to assert: {short}")
            continue
        content = path.read_text(encoding="utf-8")
        faults += [f"{file} has no {one}, which is to assert: {short}" for one in asserting if one not in content]
        if not asserting:
            faults.append(f"of {file} no test is named, which is to assert: {short}")

listed = set(re.findall(r"^\| (?:`|\[)(\w+)(?:`|\]\(\S+\)) \|", pathlib.Path("spec/README.md").read_text(encoding="utf-8"), re.M))
folders = [pathlib.Path("crates/brains", crate, "tests/scripts") for crate in ("consensus", "following")]
scripts = {path.stem for folder in folders for path in folder.glob("**/*.txt")}
faults += [f"spec/README.md does not list the script {name}" for name in sorted(scripts - listed)]
faults += [f"spec/README.md lists a script that is not there: {name}" for name in sorted(listed - scripts)]
if faults:
    sys.exit("The house is not as ARCHITECTURE.md has it:\n  " + "\n  ".join(faults))
print(f"law of imports: {len(names)} crates, all in order; {len(claims)} invariants, each with what asserts it; {len(scripts)} scripts, each listed")
