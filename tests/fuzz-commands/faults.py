"""What happens to members while clients go on: SIGKILL, a pause, a step-down, a primary that nobody follows.

Invariant: when the thread ends, every member runs.
"""

import threading
import time

import pymongo

# How long nothing happens, between.
QUIET_SECONDS = (1.0, 5.0)


class Faults(threading.Thread):
    """A thread that disturbs members until `run.stopping` is set."""

    def __init__(self, run, draw, active):
        super().__init__(name="faults", daemon=True)
        self.run_ = run
        self.draw = draw
        self.active = active
        self.disturbed = {}
        self.killed = set()
        self.done = 0

    def is_at(self, member):
        """Whether a member is disturbed, or was a moment ago: then its connections may end."""
        return time.monotonic() - self.disturbed.get(member, -100) < 10

    def run(self):
        """Until told to stop."""
        while not self.run_.stopping.wait(self.draw.uniform(*QUIET_SECONDS)):
            if self.active:
                self.draw.one_of({self.kill: 5, self.pause: 2, self.step_down: 3, self.strand: 2})()
                self.done += 1
            self.see_who_ended()
        self.see_who_ended()

    def see_who_ended(self):
        """A member that nobody killed must run."""
        for index, member in enumerate(self.run_.members):
            if not member.is_running():
                self.run_.fault("a member ended", f"member {index} ended by itself with {member.process.returncode}:\n{member.log()}")

    def kill(self):
        """SIGKILL of one, now and then of two or all; back after a moment."""
        count = len(self.run_.members)
        chosen = self.draw.sample(range(count), self.draw.choice([1, 1, 1, 1, 1, 1, 2, count][:6 + count]))
        self.see_who_ended()
        for index in chosen:
            self.disturbed[index] = time.monotonic()
            self.run_.set.kill(index)
        self.run_.stopping.wait(self.draw.uniform(0, 4) if self.draw.chance(0.7) else 0)
        for index in chosen:
            self.disturbed[index] = time.monotonic()
            self.run_.set.spawn(index)

    def pause(self):
        """SIGSTOP, and SIGCONT before or after another is elected."""
        index = self.draw.randrange(len(self.run_.members))
        self.disturbed[index] = time.monotonic()
        self.run_.set.pause(index)
        self.run_.stopping.wait(self.draw.uniform(0.2, 5))
        self.disturbed[index] = time.monotonic()
        self.run_.set.resume(index)

    def strand(self):
        """The primary is alone for a moment, and dies. What it took then is gone: none of it was acknowledged by a majority. It
        rolls back when it returns, if another was elected."""
        primary = next((index for index in range(len(self.run_.members)) if self.run_.set.hello(index).get("isWritablePrimary")), None)
        if primary is None or len(self.run_.members) < 3:
            return
        others = self.run_.set.others(primary)
        for index in others:
            self.disturbed[index] = time.monotonic()
            self.run_.set.pause(index)
        self.run_.stopping.wait(self.draw.uniform(0.2, 1.5))
        self.disturbed[primary] = time.monotonic()
        self.run_.set.kill(primary)
        for index in others:
            self.run_.set.resume(index)
        self.run_.stopping.wait(self.draw.uniform(0, 6))
        self.disturbed[primary] = time.monotonic()
        self.run_.set.spawn(primary)

    def step_down(self):
        """Whoever is primary hands over, or steps down without."""
        for index in range(len(self.run_.members)):
            if self.run_.set.hello(index).get("isWritablePrimary"):
                self.disturbed[index] = time.monotonic()
                try:
                    with self.run_.set.direct(index) as direct:
                        direct.admin.command("replSetStepDown", 2, secondaryCatchUpPeriodSecs=1, force=self.draw.chance(0.5))
                except pymongo.errors.PyMongoError:
                    # It is no longer primary, or nobody has caught up.
                    pass
                return
