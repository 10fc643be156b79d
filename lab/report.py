"""What experiments found: figures beside their bounds, and where both are kept.

A report is JSON below the output folder, `NAME.json`; pictures.py draws from it, so that a picture can be drawn anew without
measuring anew.
"""

import json
import os
import time


class Target:
    """A bound that was promised, and what was found."""

    def __init__(self, what, bound, figure, at_least=False, digits=2):
        self.what, self.bound, self.figure, self.at_least, self.digits = what, bound, figure, at_least, digits

    @property
    def is_met(self):
        """Whether what was found, to as many digits as are shown, keeps within the bound."""
        shown = round(self.figure, self.digits)
        return shown >= self.bound if self.at_least else shown <= self.bound

    def __str__(self):
        sign = "≥" if self.at_least else "≤"
        return f"{self.what}: {self.figure:.{self.digits}f} ({sign} {self.bound}) {'met' if self.is_met else 'NOT MET'}"

    def json(self):
        """For the report."""
        return {"what": self.what, "bound": self.bound, "atLeast": self.at_least, "figure": self.figure, "met": self.is_met}


class Quiet:
    """How much CPU others than the lab used meanwhile, as a share of all: over a few percent, measure again."""

    def __init__(self, account):
        self._account = account
        self._begin = self._now()

    def _now(self):
        with open("/proc/stat", encoding="ascii") as stat:
            fields = [int(field) for field in stat.readline().split()[1:9]]
        busy = (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy, int((self._account / "cpuacct.usage").read_text()) / 1e9

    def others(self):
        """The share since the beginning."""
        now = self._now()
        seconds, busy, ours = (after - before for before, after in zip(self._begin, now))
        return max(0.0, (busy - ours) / (seconds * os.cpu_count()))


def conclude(name, folder, report, targets):
    """Prints the targets and writes the report."""
    report["targets"] = [target.json() for target in targets]
    report["cpus"] = os.cpu_count()
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    for target in targets:
        print(f"lab: {target}", flush=True)
