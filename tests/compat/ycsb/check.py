"""Reads what YCSB printed: `check.py OUTPUT WHAT COUNT` fails unless COUNT operations were done and all succeeded.

A read-modify-write counts as itself and, in YCSB's report, also as a read and an update, so it is counted once.
"""

import re
import sys


def main():
    path, what, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    text = open(path, encoding="utf-8", errors="replace").read()
    done, outcomes = {}, {}
    for kind, n in re.findall(r"^\[([A-Z-]+)\], Operations, (\d+)$", text, re.M):
        done[kind] = int(n)
    for kind, outcome, n in re.findall(r"^\[([A-Z-]+)\], Return=([A-Z_]+), (\d+)$", text, re.M):
        outcomes[kind, outcome] = int(n)
    failed = {key: n for key, n in outcomes.items() if key[1] != "OK" and n}
    kinds = ("READ", "UPDATE", "INSERT", "SCAN")
    total = sum(done.get(kind, 0) for kind in kinds) - done.get("READ-MODIFY-WRITE", 0)
    if failed or total != count or "Exception" in text:
        sys.exit(f"{what}: {total} of {count} operations, failures {failed}\n{text[-3000:]}")
    rate = re.search(r"^\[OVERALL\], Throughput\(ops/sec\), ([\d.]+)$", text, re.M)
    print(f"{what}: {total} operations, {float(rate.group(1)):.0f}/s")


main()
