"""mongosh's story: the first session of the README word for word, then what people type next.

Invariant: the README's session is read from the README, so that it cannot drift from what is tested.
"""

import os
import pathlib
import re
import subprocess
import sys

MONGOSH = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[3]

# Each is typed; its output must contain the text, or match the pattern.
STORY = [
    ("show dbs", r"admin"),
    ("db.hello().setName", r"rs0"),
    ("use shell_story", r"switched to db shell_story"),
    ("db.dropDatabase()", r"ok: 1"),
    ("db.c.insertMany([...Array(50).keys()].map(n => ({_id: n, a: n % 5, t: [n, 'x']}))).acknowledged", r"true"),
    ("db.c.find().sort({_id: -1}).limit(2)", r"_id: 49.*_id: 48"),
    ("db.c.countDocuments({a: 3})", r"10"),
    ("db.c.find()", r'Type "it" for more'),
    ("it", r"_id: 39"),
    ("db.c.createIndex({a: 1}, {name: 'by_a'})", r"by_a"),
    ("db.c.getIndexes().map(i => i.name)", r"_id_.*by_a"),
    ("db.c.find({a: 1}).explain('executionStats').executionStats.nReturned", r"10"),
    ("db.c.updateMany({a: 1}, {$set: {seen: true}}).modifiedCount", r"10"),
    ("db.c.aggregate([{$group: {_id: '$a', n: {$sum: 1}}}, {$sort: {_id: 1}}]).toArray().length", r"5"),
    ("db.c.bulkWrite([{insertOne: {document: {_id: 'b'}}}, {deleteOne: {filter: {_id: 0}}}]).deletedCount", r"1"),
    ("try { db.c.insertOne({_id: 1}) } catch (e) { e.code }", r"11000"),
    ("db.c.stats().count", r"50"),
    ("db.stats().collections", r"\d"),
    ("db.c.validate().valid", r"true"),
    ("db.createView('v', 'c', [{$match: {a: 2}}]).ok", r"1"),
    ("db.v.countDocuments()", r"10"),
    ("show collections", r"c\b.*v\b"),
    ("db.createCollection('log', {capped: true, size: 100000}).ok", r"1"),
    ("db.log.isCapped()", r"true"),
    ("db.c.renameCollection('d').ok", r"1"),
    ("db.d.findOneAndUpdate({_id: 7}, {$inc: {a: 100}}, {returnDocument: 'after'}).a", r"102"),
    ("db.d.distinct('a').length", r"6"),
    ("db.currentOp().ok", r"1"),
    ("db.serverStatus().connections.current", r"\d"),
    ("db.version()", r"7\.0"),
    ("rs.status().members[0].stateStr", r"PRIMARY"),
    ("rs.conf()._id", r"rs0"),
    ("rs.printSecondaryReplicationInfo(); db.getSiblingDB('local').system.replset.findOne()._id", r"rs0"),
    ("rs.printReplicationInfo(); db.getReplicationInfo().configuredLogSizeMB", r"\d"),
    ("db.adminCommand({getParameter: 1, featureCompatibilityVersion: 1}).featureCompatibilityVersion.version", r"7\.0"),
    ("db.runCommand({nosuchcommand: 1}).ok", r"no such command"),
    ("s = db.getMongo().startSession(); s.getDatabase('shell_story').d.findOne({_id: 7})._id", r"7"),
    ("db.getProfilingStatus().was", r"0"),
    ("db.dropDatabase().ok", r"1"),
]


def type_into_mongosh(lines):
    """Runs lines as one typed session and gives what was shown for each."""
    environment = {**os.environ, "HOME": os.environ["CLIENTS"] + "/home", "MONGOSH_FORCE_TERMINAL": "", "NO_COLOR": "1"}
    os.makedirs(environment["HOME"], exist_ok=True)
    # Printed between the lines, so that each output can be told from the next.
    script = "".join(f"{line}\nprint('<<{n}>>')\n" for n, line in enumerate(lines))
    shown = subprocess.run(
        [MONGOSH, os.environ["BATON_URI"], "--quiet", "--norc"], input=script, text=True, capture_output=True,
        timeout=300, env=environment)
    outputs, rest = [], shown.stdout
    for n in range(len(lines)):
        output, mark, rest = rest.partition(f"<<{n}>>")
        if not mark:
            sys.exit(f"mongosh ended at: {lines[n]}\n{shown.stdout[-2000:]}\n{shown.stderr[-2000:]}")
        outputs.append(output)
    return outputs


def without_prompts(text):
    """The output alone: no prompts, no space that only shapes it."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    text = re.sub(r"^(?:rs0 \[[^\]]*\] \S+> |\S+> |\| |\.\.\. )+", "", text, flags=re.M)
    return re.sub(r"\s+", " ", text).strip()


def readme_session():
    """The lines typed in the README's first session, each with what the README says is shown."""
    session = re.search(r"^\$ mongosh .*?\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S | re.M).group(1)
    steps = []
    for line in session.splitlines():
        typed = re.match(r"rs0 \[primary\] (\S+)> (.*)", line)
        if typed:
            steps.append((typed.group(2), []))
        elif line.strip():
            steps[-1][1].append(line)
    return [(typed, without_prompts("\n".join(shown))) for typed, shown in steps]


def main():
    failures = []
    readme = readme_session()
    assert len(readme) >= 4, "the README's session was not found"
    assert all(expected for _, expected in readme), "a line of the README's session shows nothing"
    for (typed, expected), shown in zip(readme, type_into_mongosh([typed for typed, _ in readme])):
        if without_prompts(shown) != expected:
            failures.append(f"README: {typed}\n  says  {expected}\n  shows {without_prompts(shown)}")
    for (typed, pattern), shown in zip(STORY, type_into_mongosh([typed for typed, _ in STORY])):
        if not re.search(pattern, without_prompts(shown), re.S):
            failures.append(f"{typed}\n  expected {pattern}\n  shows    {without_prompts(shown)[:500]}")
    for failure in failures:
        print(failure)
    if failures:
        sys.exit(f"mongosh: {len(failures)} of {len(readme) + len(STORY)} lines went otherwise")
    print(f"mongosh: {len(readme) + len(STORY)} lines, all as told")


main()
