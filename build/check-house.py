#!/usr/bin/env python3
"""Compares the crates' dependencies with the law of imports that ARCHITECTURE.md states.

The law is the fenced block after the line `<!-- law -->`: one floor a line, lowest first, `floor: crate crate …`; a
crate may import from floors below its own, and from what stands in brackets behind it.
"""
import json
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
if faults:
    sys.exit("The law of imports is broken:\n  " + "\n  ".join(faults))
print(f"law of imports: {len(names)} crates, all in order")
