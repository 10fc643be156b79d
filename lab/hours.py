"""An hour of more than a member can do: whether anybody starves, and whether members go on to hear of each other in time.

Nothing is compared but with half a minute of quiet before. Each second it is noted how long the first member has not heard of the others, and the longest
that a request of each class has waited at the door since the member started. Each class's requests are told in quantiles alone. A small request takes
as long as it waits, wherever that is, at the door or for a processor: so of a class whose requests are small the longest one counts, too.
"""

import threading
import time

from lab.classed import CLASSES, classed
from lab.load import quantile
from lab.machines import ACCOUNT
from lab.report import Quiet, Target, conclude

SECONDS = 3600
QUIET_SECONDS = 30


class Hour:
    """The clients of each class, of which those of low class are to be starved."""

    def __init__(self, members, cores, records=20_000, value_bytes=1000, small=(), **clients):
        """`small`: the classes whose requests are."""
        self.members, self.cores, self.records, self.value_bytes, self.clients = members, cores, records, value_bytes, clients
        self.small = small

    def measure(self, name, rounds, folder, output):
        """Runs it, once whatever `rounds` says; writes its report. `rounds` below 10 make it so many minutes, to try it."""
        seconds = SECONDS if rounds >= 10 else 60 * rounds
        with classed(folder, self.members, self.cores, self.records, self.value_bytes) as lab:
            lab.configure("full")
            quiet = Quiet(ACCOUNT)
            with Watch(lab) as before:
                time.sleep(QUIET_SECONDS)
            with Watch(lab) as meanwhile:
                loads = {kind: lab.load(kind, of, self.records, self.value_bytes, seconds, 1) for kind, of in self.clients.items()}
                results = {kind: load.result() for kind, load in loads.items()}
            status = lab.status()
            others = quiet.others()
        classes = {kind: {**result["latencyMs"], "perSecond": result["perSecond"], "failures": result["failures"],
                          "waitedMostMs": status["classes"][kind]["worstWaitMicros"] / 1000, "aged": status["classes"][kind]["aged"]} for kind, result in results.items()}
        report = {"part": name, "kind": "hour", "seconds": seconds, "members": self.members, "small": self.small, "classes": classes, "others": others,
                  "worstWaitMs": status["worstWaitMs"], "silenceMs": {"quiet": before.silence(), "meanwhile": meanwhile.silence()},
                  "elections": meanwhile.elections(), "samples": meanwhile.samples}
        print(f"lab: {name}: {classes}, heard of the others after {report['silenceMs']} ms; others {others:.0%}", flush=True)
        conclude(f"priority-{name}", output, report, targets(report))


def targets(report):
    """What was promised of an hour."""
    listed = [Target(f"ms that one of {kind} class waited at the door at the most", report["worstWaitMs"], of["waitedMostMs"], digits=0)
              for kind, of in report["classes"].items()]
    listed += [Target(f"ms that one of {kind} class took at the most", report["worstWaitMs"], report["classes"][kind]["max"], digits=0)
               for kind in report["small"]]
    listed.append(Target("low: requests answered a minute", 1, 60 * report["classes"]["low"]["perSecond"], at_least=True))
    if report["members"] > 1:
        listed += [Target("elections", 0, report["elections"], digits=0),
                   Target("ms until 99 of 100 urgent writes are committed, at the most", 20, report["classes"]["high"]["p99"])]
    return listed


class Watch(threading.Thread):
    """Looks at the first member each second while it is entered: a sample is (seconds since, term, ms not heard of another, worst waits by class)."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self._lab, self._ended, self._begun = lab, threading.Event(), time.monotonic()
        self.samples = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()

    def run(self):
        while not self._ended.wait(1):
            status, door = self._lab.members.status(0), self._lab.status()
            heard = [member["lastHeartbeatRecv"] for member in status["members"] if not member.get("self")]
            silence = max(((status["date"] - at).total_seconds() * 1000 for at in heard), default=0.0)
            waits = {kind: door["classes"][kind]["worstWaitMicros"] / 1000 for kind in CLASSES}
            self.samples.append((round(time.monotonic() - self._begun, 1), status["term"], silence, waits))

    def silence(self):
        """For how long another member was not heard of, in ms: most times, and at the most."""
        values = sorted(silence for _, _, silence, _ in self.samples)
        return {"p50": quantile(values, 0.5), "p99": quantile(values, 0.99), "max": values[-1]}

    def elections(self):
        """How often somebody was elected."""
        return self.samples[-1][1] - self.samples[0][1]
