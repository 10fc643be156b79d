"""Half as many requests again as a member has time for, each with a deadline of 1 to 100 ms: how many are in time, of how many could be.

What one request takes is what is between two where clients in a closed loop keep the member's processor busy. It is measured before each run
and after it, and the lesser of both counts: a machine that has become faster meanwhile may not have a member look better than one who knew
all requests before. They come at random moments, whether or not those before them are answered.
"""

import statistics

from lab.classed import Clients, classed
from lab.machines import ACCOUNT
from lab.oracle import in_time_at_most, in_time_in_turn
from lab.report import Quiet, Target, conclude

LOAD = 1.5
DEADLINES_MS = "1-100"
SECONDS = 4
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
                    fastest = max(before, capacity)
                    rows[mode].append({**self._row(came, 1 / fastest), "load": pace / fastest})
                shown = ", ".join(f"{mode} {of[-1]['share']:.2f}" for mode, of in rows.items())
                last = rows["full"][-1]
                print(f"lab: {name}, round {turn + 1}: {capacity:.0f} a second, load {last['load']:.2f}; in time: {shown}, of an oracle {last['ofOracle']:.2f} of it, "
                      f"in turn {last['inTurn']:.2f}; others {quiet.others():.0%}", flush=True)
        found = {mode: {figure: statistics.median(row[figure] for row in of) for figure in of[0]} for mode, of in rows.items()}
        report = {"part": name, "kind": "deadlines", "scanned": self.scanned, "load": LOAD, "seconds": SECONDS, "rows": rows, "summary": found}
        full = found["full"]
        conclude(f"priority-{name}", output, report, [
            Target("full: in time, of those that an oracle has in time", 0.95, full["ofOracle"], at_least=True),
            Target("full: in time, of those in time where the first to come is served first", 3, full["share"] / full["inTurn"], at_least=True)])

    def _capacity(self, lab, turn):
        """How many the member answers a second, one after the other."""
        lab.configure("off")
        return self._load(lab, Clients(4), turn)["perSecond"]

    def _load(self, lab, clients, turn):
        return lab.load("normal", clients, self.scanned, VALUE_BYTES, SECONDS, turn, says_class=False, scan=self.scanned).result()

    @staticmethod
    def _row(came, takes):
        jobs = [(at, at + deadline_ms / 1000) for at, deadline_ms, _ in came]
        in_time = sum(took is not None for *_, took in came)
        return {"asked": len(came), "share": in_time / len(came), "ofOracle": in_time / in_time_at_most(jobs, takes),
                "inTurn": in_time_in_turn(jobs, takes) / len(came), "takesMs": takes * 1000}
