"""Leadership that moves before heavy work: the evaluation of the paper that it follows, and what that leaves open.

Source: "Replica-group leadership change as a performance enhancing mechanism in NoSQL data stores" (Papaioannou and Magoutis, ICDCS
2018), Figures 2 to 4. The paper's hour is SCALE times shorter here: the intervals at which members compact, and the settings that are
times (cooldown, tenure, postponement). What a compaction or a backup does is not scaled: it is of the table's own size.

    lab/run.sh leadership --part compactions --rounds 5

Every part is a table of variants (settings of the set) that run in turns, `rounds` times, on one set of members: what differs between
two variants is what both had around them. A stretch is disturbed from the moment in which a chore is asked of whoever is primary
until the chore has ended, wherever it ran; it is quiet where no chore waits or runs at all.

Invariant: every figure is of all requests of its stretch, and a ratio of two stretches of one run.
"""

import contextlib
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import threading
import time

import pymongo

from lab.load import quantile
from lab.machines import ACCOUNT, Machines
from lab.members import Load, Members
from lab.report import Quiet, Target, conclude

SCALE = 60
VALUE_BYTES = 1000
RECORDS = 300_000
# A backup of so many from a loaded primary takes what it takes of the paper's hour: 45 %.
RECORDS_OF_LONG_BACKUP = 850_000
# The process and the kernel's cache of its files together; the table takes some 330 MB.
MEMORY_MBYTE = 450
CACHE_GB = 0.08
DISK_MBYTE_PER_SECOND = 60
CORES = 0.42
CLIENT_CORES = 0.5
OPERATOR_CORES = 0.2
SECONDS = 60
WARMUP_SECONDS = 8
# The paper's members compact every 30 to 45 minutes.
INTERVAL_SECONDS = (30 * 60 / SCALE, 45 * 60 / SCALE)
CHORE_SECONDS_MAX = 60
# Of an hour: no run lasts so long, and whether the set keeps to it is the simulator's to see.
MOVES_MAX = 12
# What is left to a machine that lags.
LAGGARDS_SHARE = 0.2
# What a stretch needs at least for a figure of it.
STRETCH_SECONDS_MIN = 1.0
SETTINGS = {"cooldownSecs": round(120 / SCALE), "minTenureSecs": round(60 / SCALE), "maxPostponeSecs": round(600 / SCALE),
            "maxMovesPerHour": MOVES_MAX * SCALE}
# No primary is less than an election timeout in office before it hands over: that, too, is shorter, as far as members that have used
# their quota up answer in time.
TIMERS = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}

MODES = {mode: {"mode": mode} for mode in ("off", "always", "costBased")}
# Where it is to be seen what the mechanism brings, or costs.
ON_AND_OFF = {mode: MODES[mode] for mode in ("off", "costBased")}
# A compaction of a machine that lags takes longer than a task may be postponed for here, which is scaled where the compaction is not.
PATIENT = {mode: {"mode": mode, "maxPostponeSecs": 40} for mode in MODES}
# What compares with the others at random is for labs alone.
RANKINGS = {name: {"mode": "always", "ranking": name, **({"isLab": True} if name == "random" else {})}
            for name in ("mrc", "lsp", "preferred", "score", "random")}


class Part:
    """One experiment: what runs, with which load, beside which chores."""

    def __init__(self, variants, chores, members=3, reads=0.9, clients=2, w=1, records=RECORDS):
        self.variants, self.chores, self.members, self.records = variants, chores, members, records
        self.load = {"reads": reads, "clients": clients, "w": w, "j": "true"}


def compactions(run):
    """Every member compacts at intervals of its own."""
    for index in range(len(run.members.machines)):
        run.every(index, "compact")


def together(run):
    """Every member is due at the same moment."""
    for index in range(len(run.members.machines)):
        run.at(SECONDS / 4, lambda i=index: run.compact(i))


def backup(run):
    """`baton backup` of the set, as an operator types it."""
    run.at(SECONDS / 6, run.back_up)


def both(run):
    """A backup, and a compaction that is due while it runs."""
    backup(run)
    run.at(SECONDS / 6 + 4, lambda: run.compact(run.primary()))


def lagging(run):
    """Every member compacts, and one has too little CPU to keep up with what is written."""
    run.slow_down(len(run.members.machines) - 1, LAGGARDS_SHARE)
    compactions(run)


def none(_):
    """Nothing heavy at all: nobody asks for anything, and nothing is written that RocksDB could compact."""


PARTS = {
    "compactions": Part(MODES, compactions),
    "compactions-writes": Part(MODES, compactions, reads=0.5),
    "compactions-majority": Part(MODES, compactions, reads=0.5, w="majority"),
    "compactions-16": Part(MODES, compactions, clients=16),
    "backup": Part(MODES, backup),
    "backup-long": Part(ON_AND_OFF, backup, records=RECORDS_OF_LONG_BACKUP),
    "rankings": Part(RANKINGS, compactions),
    "two-at-once": Part(MODES, both),
    "together": Part(MODES, together),
    "lagging": Part(PATIENT, lagging, reads=0.5),
    "five": Part(MODES, compactions, members=5),
    "nothing": Part(ON_AND_OFF, none, reads=1.0),
}


class Run:
    """One variant, once: the load, the chores beside it, and who was what meanwhile."""

    def __init__(self, members, operator, folder, seed):
        self.members, self.operator, self.folder = members, operator, folder
        self.random = random.Random(seed)
        self.chores, self.seen, self.hits, self._threads, self._slowed = [], [], [], [], []
        self._ended = threading.Event()
        self.begun = 0.0

    def primary(self):
        """Who takes writes, as seen last."""
        return next((index for _, index, _ in reversed(self.seen) if index is not None), 0)

    def at(self, seconds, chore):
        """Has a chore begin so long after the load."""
        self._start(lambda: None if self._rest_until(seconds) else chore())

    def every(self, index, name):
        """Has a member's chore begin again and again."""
        def repeat():
            at = WARMUP_SECONDS + self.random.uniform(0, INTERVAL_SECONDS[1])
            while not self._rest_until(at):
                getattr(self, name)(index)
                at = max(at, time.monotonic() - self.begun) + self.random.uniform(*INTERVAL_SECONDS)

        self._start(repeat)

    def _start(self, what):
        self._threads.append(threading.Thread(target=what, daemon=True))

    def _rest_until(self, seconds):
        """Whether the run has ended before."""
        return self._ended.wait(max(0.0, self.begun + seconds - time.monotonic()))

    def slow_down(self, index, share):
        """Leaves a member's machine that share of its CPU until the run has ended."""
        machine = self.members.machines[index]
        machine.limit_cpu(machine.cores * share)
        self._slowed.append(machine)

    def compact(self, index):
        """`compact` of the table on one member, as its operator would type it."""
        with self._chore("compact", index), contextlib.closing(client_of(self.members.machines[index])) as client:
            client.lab.command("compact", "records", force=True)

    def back_up(self):
        """`baton backup` from the primary."""
        out = self.folder / "backup"
        shutil.rmtree(out, ignore_errors=True)
        hosts = ",".join(self.members.hosts())
        with self._chore("backup", self.primary()):
            process = self.operator.start([self.members.binary, "backup", f"mongodb://{hosts}/?replicaSet=lab", "--db", "lab", "--out", out],
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            output, _ = process.communicate()
            if process.returncode:
                raise RuntimeError(f"lab: the backup ended with {process.returncode}: {output}")

    @contextlib.contextmanager
    def _chore(self, kind, index):
        chore = {"kind": kind, "member": index, "ofPrimary": index == self.primary(), "asked": time.monotonic(), "failed": None}
        self.chores.append(chore)
        try:
            yield
        except (pymongo.errors.PyMongoError, RuntimeError) as error:
            # It is told in the report, and by who reads that.
            chore["failed"] = str(error)
        chore["ended"] = time.monotonic()

    def carry_out(self, load):
        """Runs it all; gives the load's result."""
        self.begun = time.monotonic()
        for thread in self._threads:
            thread.start()
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        result = load.result()
        self._ended.set()
        for machine in self._slowed:
            machine.limit_cpu(machine.cores)
        watcher.join()
        for thread in self._threads:
            thread.join(CHORE_SECONDS_MAX)
        return result

    def _watch(self):
        """Who is primary and who works, five times a second."""
        while not self._ended.wait(0.2):
            primary, working = None, []
            for index in range(len(self.members.machines)):
                with contextlib.suppress(pymongo.errors.PyMongoError):
                    status = self.members.status(index)
                    own = next(member for member in status["members"] if member.get("self"))
                    if own["stateStr"] == "PRIMARY":
                        primary = index
                        self.hits.append(own["cacheHitRatio"])
                    running = [task["kind"] for task in own.get("tasks", []) if task.get("state") == "running"]
                    if any(kind in ("compaction", "backup") for kind in running):
                        working.append(index)
            self.seen.append((time.monotonic(), primary, working))


def client_of(machine):
    """A client of one member that waits for as long as a chore takes."""
    return pymongo.MongoClient(machine.address, 27017, directConnection=True, serverSelectionTimeoutMS=3000)


def stretches(chores, begin, end):
    """The quiet and the disturbed times within a run, as lists of pairs; what is neither belongs to chores of secondaries."""
    disturbed = merged([(chore["asked"], chore.get("ended", end)) for chore in chores if chore["ofPrimary"]], begin, end)
    busy = merged([(chore["asked"], chore.get("ended", end)) for chore in chores], begin, end)
    quiet, at = [], begin
    for start, stop in busy:
        quiet.append((at, start))
        at = stop
    quiet.append((at, end))
    return [pair for pair in quiet if pair[1] > pair[0]], disturbed


def merged(pairs, begin, end):
    """The union of pairs within begin and end, in order."""
    union = []
    for start, stop in sorted((max(begin, start), min(end, stop)) for start, stop in pairs):
        if stop <= start:
            continue
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], stop))
        else:
            union.append((start, stop))
    return union


def figures(each, within):
    """Throughput and latency of the requests answered within these times; none if that is too short."""
    seconds = sum(stop - start for start, stop in within)
    if seconds < STRETCH_SECONDS_MIN:
        return None
    latencies = sorted(ms for at, ms in each if any(start <= at < stop for start, stop in within))
    if not latencies:
        return {"seconds": seconds, "perSecond": 0.0, "p99": None, "p999": None, "longest": None}
    return {"seconds": seconds, "perSecond": len(latencies) / seconds, "p99": quantile(latencies, 0.99),
            "p999": quantile(latencies, 0.999), "longest": latencies[-1]}


def ratio(row, name):
    """Disturbed of quiet; none where either is not there."""
    if not row["disturbed"] or not row["quiet"] or not row["disturbed"][name] or not row["quiet"][name]:
        return None
    return row["disturbed"][name] / row["quiet"][name]


def spread(values):
    """The median, the least and the most of those that there are."""
    values = [value for value in values if value is not None]
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": len(values)} if values else None


def backup_seconds(row):
    """How long the run's backup took; none if there was none, or it failed."""
    return next((chore["ended"] - chore["asked"] for chore in row["chores"] if chore["kind"] == "backup" and not chore["failed"]), None)


def beside(rows, off):
    """What each round of a mode was of the same round with the mode off: throughput of the whole, and how long a backup took."""
    def shorter(row, of):
        here, there = backup_seconds(row), backup_seconds(of)
        return here / there if here and there else None

    return {"ofOff": spread([row["all"]["perSecond"] / of["all"]["perSecond"] for row, of in zip(rows, off)]),
            "backupOfOff": spread([shorter(row, of) for row, of in zip(rows, off)])}


def summary(rows):
    """Medians over a variant's rounds, with the least and the most."""
    return {
        "perSecond": spread([row["all"]["perSecond"] for row in rows]),
        "throughputRatio": spread([ratio(row, "perSecond") for row in rows]),
        "p99Ratio": spread([ratio(row, "p99") for row in rows]),
        "p999Ratio": spread([ratio(row, "p999") for row in rows]),
        "p99Ms": spread([row["all"]["p99"] for row in rows]),
        "p999Ms": spread([row["all"]["p999"] for row in rows]),
        "longestMs": spread([row["all"]["longest"] for row in rows]),
        "cacheHitRatio": spread([row["cacheHitRatio"] for row in rows]),
        "moves": spread([row["moves"] for row in rows]),
        "backupSeconds": spread([backup_seconds(row) for row in rows]),
        "failedChores": sum(bool(chore["failed"]) for row in rows for chore in row["chores"]),
    }


def moves(seen):
    """How often somebody else was primary than before."""
    primaries = [index for _, index, _ in seen if index is not None]
    return sum(before != after for before, after in zip(primaries, primaries[1:]))


def configure(members, settings):
    """Gives the set these settings of leadership, and waits until it is at rest with the first member as primary."""
    index = members.primary()
    config = members.command(index, "replSetGetConfig")["config"]
    config["version"] += 1
    # While the first is made primary nothing else moves.
    config.setdefault("settings", {})["leadership"] = {**SETTINGS, "mode": "off"}
    members.command(index, "replSetReconfig", config)

    def is_first():
        if members.primary() == 0:
            return True
        members.command(0, "replSetStepUp")
        return False

    members.await_that(is_first, "the first member as primary", interval_seconds=0.5)
    config = members.command(0, "replSetGetConfig")["config"]
    config["version"] += 1
    config["settings"]["leadership"] = {**SETTINGS, **settings}
    members.command(0, "replSetReconfig", config)
    members.await_level(60)


def measure(name, part, rounds, folder, output):
    """Runs a part; writes its report."""
    with Machines() as machines:
        site = machines.site("east")
        own = [machines.machine(f"member-{i}", site, CORES * 3 / part.members) for i in range(part.members)]
        folder.mkdir(parents=True, exist_ok=True)
        for machine in own:
            machine.limit_disk(folder, DISK_MBYTE_PER_SECOND)
            machine.limit_memory(MEMORY_MBYTE)
        clients, operator = machines.machine("clients", site, CLIENT_CORES), machines.machine("operator", site, OPERATOR_CORES)
        machines.observe_from(site)
        members = Members(own, folder, cache_gb=CACHE_GB).start({**TIMERS, "leadership": {**SETTINGS, "mode": "off"}})
        members.check_limits(CORES * 3 / part.members, DISK_MBYTE_PER_SECOND)
        members.fill(part.records, VALUE_BYTES)
        rows = {variant: [] for variant in part.variants}
        for turn in range(rounds):
            for variant, settings in part.variants.items():
                configure(members, settings)
                run = Run(members, operator, folder, seed=turn)
                part.chores(run)
                quiet = Quiet(ACCOUNT)
                load = Load(clients, members.hosts(), bytes=VALUE_BYTES, records=part.records, warmup=WARMUP_SECONDS, seconds=SECONDS,
                            seed=turn, **part.load, switches=("zipfian", "each"))
                rows[variant].append(row_of(run, run.carry_out(load), quiet.others()))
                say(name, variant, turn, rows[variant][-1])
        handoffs = {index: members.status(index).get("handoffs", []) for index in range(part.members)}
    report = {"part": name, "load": part.load, "records": part.records, "seconds": SECONDS, "scale": SCALE, "members": part.members,
              "rows": rows, "summary": {variant: {**summary(of), **beside(of, rows.get("off", []))} for variant, of in rows.items()},
              "handoffs": json.loads(json.dumps(handoffs, default=str))}
    conclude(f"leadership-{name}", output, report, targets(report["summary"]))


def row_of(run, result, others):
    """A run's figures, and what is drawn of it."""
    each = result.pop("each")
    begin, end = result["begun"] + WARMUP_SECONDS, result["begun"] + WARMUP_SECONDS + SECONDS
    quiet, disturbed = stretches(run.chores, begin, end)
    interval = result["intervalSeconds"]
    per_second = [sum(result["counts"][i:i + 10]) / (10 * interval) for i in range(0, len(result["counts"]), 10)]
    return {
        "all": figures(each, [(begin, end)]), "quiet": figures(each, quiet), "disturbed": figures(each, disturbed),
        "cacheHitRatio": statistics.fmean(run.hits) if run.hits else None,
        "moves": moves(run.seen), "longestGapSeconds": result["longestGapSeconds"], "failures": result["failures"],
        "chores": [{**chore, "from": chore["asked"] - result["begun"], "to": chore.get("ended", end) - result["begun"]}
                   for chore in run.chores],
        "seen": [(round(at - result["begun"], 2), primary, working) for at, primary, working in run.seen],
        "perSecond": per_second, "others": others,
    }


def say(name, variant, turn, row):
    """A line a run."""
    shown = {key: (round(value, 2) if value else None) for key, value in
             (("throughput", ratio(row, "perSecond")), ("p99", ratio(row, "p99")), ("p99.9", ratio(row, "p999")))}
    failed = [chore["failed"] for chore in row["chores"] if chore["failed"]]
    print(f"lab: {name}, {variant}, round {turn + 1}: {row['all']['perSecond']:.0f} a second, disturbed of quiet {shown}, "
          f"{row['moves']} moves, {len(row['chores'])} chores, longest {row['all']['longest']:.0f} ms, others {row['others']:.0%}"
          + (f", failed: {failed}" if failed else ""), flush=True)


def targets(found):
    """What was promised of a part that has the mode off to compare with."""
    if "off" not in found:
        return []
    listed = []
    for mode in (mode for mode in found if mode != "off"):
        if found[mode]["throughputRatio"]:
            listed += [
                Target(f"{mode}: throughput in disturbed time, of quiet", 0.97, found[mode]["throughputRatio"]["median"], at_least=True),
                Target(f"{mode}: p99 in disturbed time, of quiet", 1.2, found[mode]["p99Ratio"]["median"]),
                Target(f"{mode}: p99.9 in disturbed time, of quiet", 1.5, found[mode]["p999Ratio"]["median"]),
            ]
        listed.append(Target(f"{mode}: throughput over the whole, of off", 0.99, found[mode]["ofOff"]["median"], at_least=True, digits=3))
        if found[mode]["backupOfOff"]:
            listed.append(Target(f"{mode}: how long a backup takes, of off", 0.7, found[mode]["backupOfOff"]["median"]))
    return listed


def run(folder, output, part=None, rounds=5):
    """Measures one part, or all."""
    for name, one in PARTS.items():
        if part in (None, name):
            # What a killed run has left.
            shutil.rmtree(folder, ignore_errors=True)
            measure(name, one, rounds, pathlib.Path(folder), output)
            shutil.rmtree(folder, ignore_errors=True)
