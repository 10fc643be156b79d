"""Half as many requests again as a member has time for, each with a deadline of 1 to 100 ms: how many are in time, of how many could be.

What one request takes is what is between two where clients in a closed loop keep the member's processor busy. A machine's pace changes from one
second to the next, by more than what is to be seen: so runs are short, it is measured right before and right after each, and a run of which the
two differ by more than a twentieth says nothing about an oracle and does not count for it. They come at random moments, whether or not those
before them are answered.
"""

import statistics

from lab.classed import Clients, classed
from lab.machines import ACCOUNT
from lab.oracle import in_time_at_most, in_time_in_turn
from lab.report import Quiet, Target, conclude

LOAD = 1.5
DEADLINES_MS = "1-100"
SECONDS, WARMUP_SECONDS = 2, 0.5
PACE_SECONDS, PACE_WARMUP_SECONDS = 0.8, 0.2
# The pace before a run and after it, the greater by the lesser, at the most.
STEADY = 1.05
# So many that one is free for whichever request comes.
CONNECTIONS = 400
VALUE_BYTES = 100
MODES = ("off", "full")


class Deadlines:
    """Requests that look through so many documents."""

    def __init__(self, scanned):
        self.scanned = scanned

    def measure(self, name, rounds, folder, output):
        """Runs it; writes its report."""
        rows = {mode: [] for mode in MODES}
        with classed(folder, members=1, cores=1, records=self.scanned, value_bytes=VALUE_BYTES) as lab:
            for turn in range(rounds):
                quiet = Quiet(ACCOUNT)
                capacity = self._capacity(lab, turn)
                for mode in MODES:
                    lab.configure(mode)
                    pace = LOAD * capacity
                    came = self._load(lab, Clients(CONNECTIONS, pace=pace, deadlines=DEADLINES_MS), turn)["asked"]
                    before, capacity = capacity, self._capacity(lab, turn)
                    mean = (before + capacity) / 2
                    change = max(before, capacity) / min(before, capacity)
                    rows[mode].append({**self._row(came, 1 / mean), "load": pace / mean, "change": change})
                shown = ", ".join(f"{mode} {of[-1]['share']:.2f}" for mode, of in rows.items())
                last = rows["full"][-1]
                print(f"lab: {name}, round {turn + 1}: {capacity:.0f} a second, load {last['load']:.2f}, pace changed by {last['change'] - 1:.0%}; in time: {shown}, of an oracle {last['ofOracle']:.2f} of it, "
                      f"in turn {last['inTurn']:.2f}; others {quiet.others():.0%}", flush=True)
        steady = {mode: [row for row in of if row["change"] <= STEADY] for mode, of in rows.items()}
        found = {mode: {figure: statistics.median(row[figure] for row in steady[mode] or of) for figure in of[0]} for mode, of in rows.items()}
        report = {"part": name, "kind": "deadlines", "scanned": self.scanned, "load": LOAD, "seconds": SECONDS, "rows": rows, "summary": found,
                  "steady": {mode: len(of) for mode, of in steady.items()}}
        print(f"lab: {name}: of {rounds} runs the pace was steady in {report['steady']}; medians of these: {found}", flush=True)
        full = found["full"]
        conclude(f"priority-{name}", output, report, [
            Target("full: in time, of those that an oracle has in time", 0.95, full["ofOracle"], at_least=True),
            Target("full: in time, of those in time where the first to come is served first", 3, full["share"] / full["inTurn"], at_least=True)])

    def _capacity(self, lab, turn):
        """How many the member answers a second, one after the other."""
        lab.configure("off")
        return self._load(lab, Clients(4), turn, PACE_SECONDS, PACE_WARMUP_SECONDS)["perSecond"]

    def _load(self, lab, clients, turn, seconds=SECONDS, warmup=WARMUP_SECONDS):
        return lab.load("normal", clients, self.scanned, VALUE_BYTES, seconds, turn, says_class=False, warmup=warmup, scan=self.scanned).result()

    @staticmethod
    def _row(came, takes):
        jobs = [(at, at + deadline_ms / 1000) for at, deadline_ms, _ in came]
        in_time = sum(took_ms is not None and took_ms <= deadline_ms for _, deadline_ms, took_ms in came)
        return {"asked": len(came), "share": in_time / len(came), "ofOracle": in_time / in_time_at_most(jobs, takes),
                "inTurn": in_time_in_turn(jobs, takes) / len(came), "takesMs": takes * 1000}
