"""Files with the steps of a member's machines, and `baton-sim --replay` of them."""

import os
import pathlib
import re
import subprocess


def simulator():
    """The simulator: BATON_SIM, or what lies beside the binary under test."""
    path = pathlib.Path(os.environ.get("BATON_SIM") or pathlib.Path(os.environ["BATON"]).with_name("baton-sim"))
    assert path.exists(), f"there is no {path}; `cargo build -p baton-sim` makes it, or BATON_SIM names another"
    return path


def files_of(member):
    """The files that a member has written, the oldest first."""
    return sorted((member.data / "diagnostic.data").glob("steps-*.jsonl"))


def run(path, *arguments):
    """Replays a file, whatever comes of it."""
    return subprocess.run([simulator(), "--replay", path, *arguments], capture_output=True, text=True, timeout=120, check=False)


def replay(path, *arguments):
    """Replays a file, in which all must be as recorded; returns what was printed and the number of steps."""
    done = run(path, *arguments)
    assert done.returncode == 0, f"{path}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    found = re.search(r"^(\d+) steps of (\d+) machines, all as recorded$", done.stdout, re.M)
    assert found, done.stdout[-2000:]
    return done.stdout, int(found[1])
