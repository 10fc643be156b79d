"""The crash points of the product, read from its source, and who kills at which.

Invariant: every point is one at which `crash.py` or a test of tests/faults has a member die or panic; a test of tests/cluster says so.
What `crash.py` passes by is what a member alone never comes to, and is looked for in tests/faults.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
STORAGE = ROOT / "crates/devices/storage/src"
# A member alone follows nobody, copies nobody, and has little to vote about.
OF_SETS = ("apply-", "rollback-", "fact-", "incoming-")
# Of what is large only.
OF_MUCH = ("freeing-file", "freeing-compaction")
POINT = re.compile(r'crash_point!\("([a-z-]+)"\)')


def in_source(folder=ROOT / "crates"):
    """The names of all crash points below a folder, each once."""
    names = []
    for source in sorted(folder.glob("**/*.rs")):
        names += [name for name in POINT.findall(source.read_text()) if name not in names]
    return names


def of_a_member_alone():
    """Those at which `crash.py` kills."""
    names = [name for name in in_source(STORAGE) if not name.startswith(OF_SETS + OF_MUCH)]
    # Within the first writes to a new log.
    return names + ["log-switch,commit-after-write"]


def of_sets():
    """Those that tests of tests/faults name."""
    named = set()
    for source in (ROOT / "tests/faults").glob("test_*.py"):
        named |= set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', source.read_text()))
    return named
