"""Requests of different classes on one member, or on a set: the evaluation of the paper that priorities follow.

Source: "RT-MongoDB: A NoSQL Database with Differentiated Performance" (Andreoli, Cucinotta and Pedreschi, CLOSER 2021), Figures 4 to 7.

    lab/run.sh priority --part figure-4-32 --rounds 20

Every part is a table of variants (modes of the set) that run in turns, `rounds` times, on one set of members. Each variant has the same
clients: a process for each class, that of the high class on a machine of its own, so that nobody waits within the load for another. The
primary has one processor for itself, or two that it shares with the clients where the figure has two. Beside the variants two
more runs of each round say what there is to compare with: the high clients alone, and all clients with no class said at all.

Invariant: every figure is of requests that were answered while all clients ran.
"""

import pathlib
import shutil
import statistics

from lab.load import quantile
from lab.machines import ACCOUNT, Machines
from lab.members import Load, Members
from lab.report import Quiet, Target, conclude

RECORDS = 20_000
VALUE_BYTES = 1000
SECONDS = 3
WARMUP_SECONDS = 1
MODES = ("off", "nice", "checkpoint", "both", "full")
CLASSES = ("high", "normal", "low")


class Part:
    """One figure: how many clients of each class, and what they write to. In a flood those of low class use all that there is, with
    `w: 1` as those of normal class; what there is to compare with is all but them."""

    def __init__(self, members=1, w=1, cores=1, records=RECORDS, value_bytes=VALUE_BYTES, seconds=SECONDS, is_flood=False, **clients):
        self.members, self.w, self.cores, self.clients = members, w, cores, clients
        self.records, self.value_bytes, self.seconds, self.is_flood = records, value_bytes, seconds, is_flood
        self.alone = ["high", "normal"] if is_flood else ["high"]

    def concern_of(self, name):
        """The write concern of a class."""
        return 1 if self.is_flood and name != "high" else self.w


PARTS = {
    "figure-4-8": Part(high=1, normal=7),
    "figure-4-32": Part(high=1, normal=31),
    "figure-6-8": Part(members=2, w=2, high=1, normal=7),
    "figure-6-32": Part(members=2, w=2, high=1, normal=31),
    "figure-7-6": Part(cores=2, high=2, normal=2, low=2),
    "figure-7-12": Part(cores=2, high=4, normal=4, low=4),
    "majority-3": Part(members=3, w="majority", high=1, normal=31),
    "majority-5": Part(members=5, w="majority", high=1, normal=31),
    "flood": Part(members=3, w="majority", records=1_000_000, value_bytes=100, seconds=20, is_flood=True, high=1, normal=4, low=6),
}


def summary(each, seconds):
    """The box, its whiskers, and what is beyond, in milliseconds; none of nothing."""
    values = sorted(ms for _, ms in each)
    if not values:
        return None
    shares = (("p5", 0.05), ("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("max", 1))
    return {**{name: quantile(values, share) for name, share in shares}, "perSecond": len(values) / seconds}


def configure(members, mode):
    """Has the set go by a mode."""
    config = members.command(0, "replSetGetConfig")["config"]
    config["version"] += 1
    config["settings"]["priority"] = {"mode": mode}
    members.command(0, "replSetReconfig", config)
    members.await_that(lambda: members.command(0, "serverStatus")["priority"]["mode"] == mode, "the mode", interval_seconds=0.02)


def run_once(members, machines, part, classes, says_class, seed):
    """The clients of these classes together; gives each class's requests."""
    loads = {}
    for name in classes:
        options = {"priority": name} if says_class else {}
        switches = ("each", "flood") if part.is_flood and name == "low" else ("each",)
        loads[name] = Load(machines["urgent" if name == "high" else "crowd"], members.hosts()[:1], clients=part.clients[name],
                           w=part.concern_of(name), bytes=part.value_bytes, records=part.records, warmup=WARMUP_SECONDS,
                           seconds=part.seconds, j="false", seed=seed, switches=switches, **options)
    results = {name: load.result() for name, load in loads.items()}
    # Processes begin a moment apart: what counts is when all of them ran.
    begin = max(result["begun"] + WARMUP_SECONDS for result in results.values())
    end = min(result["begun"] + WARMUP_SECONDS + part.seconds for result in results.values())
    return {name: [(at - begin, ms) for at, ms in result["each"] if begin <= at <= end] for name, result in results.items()}


def measure(name, part, rounds, folder, output):
    """Runs a part; writes its report."""
    with Machines() as lab:
        site = lab.site("east")
        folder.mkdir(parents=True, exist_ok=True)
        own = [lab.machine(f"member-{i}", site) for i in range(part.members)]
        machines = {"urgent": lab.machine("urgent", site), "crowd": lab.machine("crowd", site)}
        lab.observe_from(site)
        # The primary on the first processors, all else on the last.
        pins = ["0" if part.cores == 1 else "0,1"] + ["1"] * (part.members - 1)
        members = Members(own, folder, pins=pins).start({"priority": {"mode": "off"}, "leadership": {"mode": "off"}})
        members.fill(part.records, part.value_bytes)
        rows, lines = {}, {}
        for turn in range(rounds):
            quiet = Quiet(ACCOUNT)
            configure(members, "off")
            runs = {"alone": run_once(members, machines, part, part.alone, False, turn),
                    "none": run_once(members, machines, part, list(part.clients), False, turn)}
            for mode in MODES:
                configure(members, mode)
                runs[mode] = run_once(members, machines, part, list(part.clients), True, turn)
            for variant, run in runs.items():
                found = {kind: summary(each, part.seconds) for kind, each in run.items()}
                rows.setdefault(variant, []).append(found)
                lines.setdefault(variant, {kind: each for kind, each in run.items()})
            others = quiet.others()
            shown = ", ".join(f"{variant} {run['high']['p50']:.2f}/{run['high']['p99']:.2f}"
                              for variant, run in ((v, r[-1]) for v, r in rows.items()) if run["high"])
            print(f"lab: {name}, round {turn + 1}: p50/p99 of the high ones: {shown}; others {others:.0%}", flush=True)
        report = {"part": name, "clients": part.clients, "w": part.w, "members": part.members, "cores": part.cores, "seconds": part.seconds,
                  "rows": rows, "line": lines["full"], "summary": {variant: medians(of) for variant, of in rows.items()}}
    conclude(f"priority-{name}", output, report, targets(part, report["summary"]))


def medians(rows):
    """Over the rounds, of each class's figures."""
    return {kind: {figure: statistics.median(row[kind][figure] for row in rows if row[kind]) for figure in rows[0][kind]}
            for kind in rows[0] if rows[0][kind]}


def targets(part, found):
    """What was promised of one high client among normal ones."""
    if part.clients.get("high") != 1:
        return []
    if part.is_flood:
        return flood_targets(found)
    alone, full, none = found["alone"]["high"], found["full"], found["none"]
    kept = 0.9 if part.w == 1 else 0.85
    listed = [Target("full: p99 of the high one, of alone", 1.5, full["high"]["p99"] / alone["p99"]),
              Target("full: p50 of the high one, of alone", 1.2, full["high"]["p50"] / alone["p50"]),
              Target("full: throughput of the others, of without classes", kept,
                     full["normal"]["perSecond"] / none["normal"]["perSecond"], at_least=True)]
    if part.w != 1:
        listed.append(Target("full: p95 of the high one, of its p50", 2.5, full["high"]["p95"] / full["high"]["p50"]))
    return listed


def flood_targets(found):
    """What was promised beside those who use all that there is. An urgent write is committed before it is answered."""
    alone, full = found["alone"], found["full"]
    return [Target("full: p99 of the high one, of without the flood", 2, full["high"]["p99"] / alone["high"]["p99"]),
            Target("full: p99 of the normal ones, of without the flood", 3, full["normal"]["p99"] / alone["normal"]["p99"]),
            Target("full: ms until 99 of 100 urgent writes are committed, at the most", 20, full["high"]["p99"])]


def run(folder, output, part=None, rounds=20):
    """Measures one part, or all."""
    for name, one in PARTS.items():
        if part in (None, name):
            # What a killed run has left.
            shutil.rmtree(folder, ignore_errors=True)
            measure(name, one, rounds, pathlib.Path(folder), output)
            shutil.rmtree(folder, ignore_errors=True)

