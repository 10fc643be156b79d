"""Requests of different classes on one member, or on a set: the evaluation of the paper that priorities follow, and what goes beyond it.

Source: "RT-MongoDB: A NoSQL Database with Differentiated Performance" (Andreoli, Cucinotta and Pedreschi, CLOSER 2021), Figures 4 to 7.

    lab/run.sh priority --part figure-4-32 --rounds 20

Most parts are a table of variants (modes of the set) that run in turns, `rounds` times, on one set of members. Each variant has the same
clients: a process for each class, that of the high class on a machine of its own, so that nobody waits within the load for another. The
primary has one processor for itself, or two that it shares with the clients where the figure has two. Beside the variants two
more runs of each round say what there is to compare with: the high clients alone, and all clients with no class said at all.
Deadlines and whole hours are measured in their own ways: deadlines.py, hours.py.

Invariant: every figure is of requests that were answered while all clients ran.
"""

import contextlib
import pathlib
import shutil
import statistics

from lab.classed import WARMUP_SECONDS, Clients, classed
from lab.deadlines import Deadlines
from lab.hours import Hour
from lab.load import quantile
from lab.machines import ACCOUNT
from lab.report import Quiet, Target, conclude

RECORDS = 20_000
VALUE_BYTES = 1000
SECONDS = 3
MODES = ("off", "nice", "checkpoint", "both", "full")
# Where only that is looked at which a member does unless it is told otherwise.
AS_IT_IS = ("full",)
# A scan of so many documents takes a processor some two milliseconds.
SCANNED = 8_000
FLOOD = Clients(6, "flood")


class Part:
    """One figure: the clients of each class, and what they write to. `alone`: what there is to compare with. `is_pressed`: see `classed`."""

    def __init__(self, members=1, w=1, cores=1, records=RECORDS, value_bytes=VALUE_BYTES, seconds=SECONDS, modes=MODES, alone=("high",),
                 targets=lambda part, found: [], compacts=False, is_pressed=False, **clients):
        self.members, self.w, self.cores, self.records, self.value_bytes = members, w, cores, records, value_bytes
        self.seconds, self.modes, self.alone, self._targets, self._compacts, self._is_pressed = seconds, modes, alone, targets, compacts, is_pressed
        self.clients = {name: of if isinstance(of, Clients) else Clients(of, w=w) for name, of in clients.items()}

    def measure(self, name, rounds, folder, output):
        """Runs it; writes its report."""
        with classed(folder, self.members, self.cores, self.records, self.value_bytes, self._is_pressed) as lab:
            rows, lines = {}, {}
            for turn in range(rounds):
                quiet = Quiet(ACCOUNT)
                lab.configure("off")
                runs = {"alone": self._run(lab, self.alone, False, turn), "none": self._run(lab, self.clients, False, turn)}
                with lab.compacting() if self._compacts else contextlib.nullcontext():
                    for mode in self.modes:
                        lab.configure(mode)
                        runs[mode] = self._run(lab, self.clients, True, turn)
                for variant, (seconds, run) in runs.items():
                    rows.setdefault(variant, []).append({kind: summary(each, seconds) for kind, each in run.items()})
                    lines.setdefault(variant, run)
                others = quiet.others()
                shown = ", ".join(f"{variant} {run['high']['p50']:.2f}/{run['high']['p99']:.2f}"
                                  for variant, run in ((v, r[-1]) for v, r in rows.items()) if run["high"])
                print(f"lab: {name}, round {turn + 1}: p50/p99 of the high ones: {shown}; others {others:.0%}", flush=True)
        found = {variant: medians(of) for variant, of in rows.items()}
        report = {"part": name, "clients": {kind: of.count for kind, of in self.clients.items()}, "w": self.w, "members": self.members,
                  "cores": self.cores, "seconds": self.seconds, "rows": rows, "line": lines["full"], "summary": found}
        conclude(f"priority-{name}", output, report, self._targets(self, found))

    def _run(self, lab, classes, says_class, seed):
        """The clients of these classes together; gives for how many seconds all ran, and each class's requests."""
        loads = {name: lab.load(name, self.clients[name], self.records, self.value_bytes, self.seconds, seed, says_class, switches=("each",),
                                held=True) for name in classes}
        for load in loads.values():
            load.begin()
        return while_all_ran({name: load.result() for name, load in loads.items()}, self.seconds)


def while_all_ran(results, seconds):
    """Of loads that were measured for so many seconds each: how many they have in common, and what was answered within these.

    They begin a moment apart, more if the first ones keep the others from it.
    """
    begin = max(result["begun"] + WARMUP_SECONDS for result in results.values())
    end = min(result["begun"] + WARMUP_SECONDS + seconds for result in results.values())
    if begin >= end:
        raise RuntimeError("lab: there was no time in which all clients ran")
    return end - begin, {name: [(at - begin, ms) for at, ms in result["each"] if begin <= at <= end] for name, result in results.items()}


def summary(each, seconds):
    """The box, its whiskers, and what is beyond, in milliseconds; none of nothing."""
    values = sorted(ms for _, ms in each)
    if not values:
        return None
    shares = (("p5", 0.05), ("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("max", 1))
    return {**{name: quantile(values, share) for name, share in shares}, "perSecond": len(values) / seconds}


def medians(rows):
    """Over the rounds, of each class's figures; none of a class that was never answered."""
    found = {}
    for kind in rows[0]:
        answered = [row[kind] for row in rows if row[kind]]
        if answered:
            found[kind] = {figure: statistics.median(of[figure] for of in answered) for figure in answered[0]}
    return found


def one_among_many(part, found):
    """What was promised of one high client among normal ones."""
    alone, full, none = found["alone"]["high"], found["full"], found["none"]
    kept = 0.9 if part.w == 1 else 0.85
    listed = [Target("full: p99 of the high one, of alone", 1.5, full["high"]["p99"] / alone["p99"]),
              Target("full: p50 of the high one, of alone", 1.2, full["high"]["p50"] / alone["p50"]),
              Target("full: throughput of the others, of without classes", kept,
                     full["normal"]["perSecond"] / none["normal"]["perSecond"], at_least=True)]
    if part.w != 1:
        listed.append(Target("full: p95 of the high one, of its p50", 2.5, full["high"]["p95"] / full["high"]["p50"]))
    return listed


def beside_a_flood(_, found):
    """What was promised beside those who use all that there is. An urgent write is committed before it is answered."""
    alone, full = found["alone"], found["full"]
    return [Target("full: p99 of the high ones, of without the low ones", 2, full["high"]["p99"] / alone["high"]["p99"]),
            Target("full: p99 of the normal ones, of without the low ones", 3, full["normal"]["p99"] / alone["normal"]["p99"]),
            Target("full: ms until 99 of 100 urgent writes are committed, at the most", 20, full["high"]["p99"])]


PARTS = {
    "figure-4-8": Part(high=1, normal=7, targets=one_among_many),
    "figure-4-32": Part(high=1, normal=31, targets=one_among_many),
    "figure-6-8": Part(members=2, w=2, high=1, normal=7, targets=one_among_many),
    "figure-6-32": Part(members=2, w=2, high=1, normal=31, targets=one_among_many),
    "figure-7-6": Part(cores=2, high=2, normal=2, low=2),
    "figure-7-12": Part(cores=2, high=4, normal=4, low=4),
    "majority-3": Part(members=3, w="majority", high=1, normal=31, targets=one_among_many),
    # Where the others ask as much as they can.
    "majority-3-pressed": Part(members=3, w="majority", is_pressed=True, high=1, normal=31, targets=one_among_many),
    "majority-5": Part(members=5, w="majority", high=1, normal=31, targets=one_among_many),
    # The high client does not ask as often as it is answered, but as a page that people look at.
    "paced-32": Part(high=Clients(1, pace=300), normal=31, seconds=6, targets=one_among_many),
    "paced-majority-3": Part(members=3, w="majority", seconds=6, targets=one_among_many,
                             high=Clients(1, w="majority", pace=100), normal=31),
    # Those of low class use all that there is.
    "flood": Part(members=3, w="majority", records=1_000_000, value_bytes=100, seconds=20, alone=("high", "normal"), targets=beside_a_flood,
                  high=1, normal=Clients(4), low=FLOOD),
    # Where compactions have the disk: those of the member itself are asked for again and again.
    "compaction": Part(cores=2, records=300_000, seconds=6, modes=("off", "full"), compacts=True, high=Clients(1, j="true"), normal=4),
    # A shop: a page that must answer, the application around it, and a report.
    "mixed-day": Part(members=3, w="majority", records=200_000, seconds=60, modes=AS_IT_IS, alone=("high", "normal"),
                      targets=beside_a_flood, high=Clients(16, w="majority", pace=100),
                      normal=Clients(64, "zipfian", reads=0.9, pace=500), low=Clients(2, "report")),
    "deadlines": Deadlines(SCANNED),
    # Four high ones who keep four processors busy where there are two.
    "overload-hour": Hour(members=1, cores=2, small=("low",), high=Clients(4, scan=SCANNED), low=Clients(4)),
    "flood-hour": Hour(members=3, cores=1, records=1_000_000, value_bytes=100, high=Clients(16, w="majority", pace=50),
                       normal=Clients(16, pace=100), low=FLOOD),
}


def run(folder, output, part=None, rounds=20):
    """Measures one part, or all."""
    for name, one in PARTS.items():
        if part in (None, name):
            # What a killed run has left.
            shutil.rmtree(folder, ignore_errors=True)
            one.measure(name, rounds, pathlib.Path(folder), output)
            shutil.rmtree(folder, ignore_errors=True)
