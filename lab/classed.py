"""Clients of several classes beside each other, and the set that they ask: what the experiments on priorities share."""

import contextlib
import threading

from lab.machines import Machines
from lab.members import Load, Members

WARMUP_SECONDS = 1
CLASSES = ("high", "normal", "low")


class Clients:
    """Those of one class: how many, and what they ask for, by the options and switches of load.py."""

    def __init__(self, count, *switches, **options):
        self.count, self.switches, self.options = count, switches, options


class Classed:
    """A set with clients of several classes; those of the high class have a machine of their own."""

    def __init__(self, members, urgent, crowd, pin):
        self.members = members
        self._urgent, self._crowd, self._pin = urgent, crowd, pin

    def load(self, name, clients, records, value_bytes, seconds, seed, says_class=True, switches=(), warmup=WARMUP_SECONDS, **options):
        """Those of one class begin to ask the first member."""
        said = {"priority": name} if says_class else {}
        options = {"w": 1, "j": "false", **options, **clients.options, **said}
        return Load(self._urgent if name == "high" else self._crowd, self.members.hosts()[:1], clients=clients.count, bytes=value_bytes,
                    records=records, warmup=warmup, seconds=seconds, seed=seed, switches=(*clients.switches, *switches),
                    pin=self._pin, **options)

    @contextlib.contextmanager
    def compacting(self):
        """Meanwhile the first member compacts its table, again and again."""
        ended = threading.Event()

        def compact():
            while not ended.is_set():
                self.members.client(0).lab.command("compact", "records", force=True)

        thread = threading.Thread(target=compact)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def configure(self, mode):
        """Has the set go by a mode."""
        members = self.members
        config = members.command(0, "replSetGetConfig")["config"]
        config["version"] += 1
        config["settings"]["priority"] = {"mode": mode}
        members.command(0, "replSetReconfig", config)
        members.await_that(lambda: self.status()["mode"] == mode, "the mode", interval_seconds=0.02)

    def status(self):
        """What the first member says of its door."""
        return self.members.command(0, "serverStatus")["priority"]


@contextlib.contextmanager
def classed(folder, members, cores, records, value_bytes, is_pressed=False):
    """A set of so many members, filled: the primary on the first `cores` processors, all else on the last.

    What shares a processor here would have its own elsewhere: so the urgent clients wait for nobody there, and the members go before all other
    clients, which cost more than any real one would. These ask less then than they could; pressed, they wait for urgent ones only, and the
    members have what is left. Where the primary has both processors, clients share them with it.
    """
    with Machines() as lab:
        site = lab.site("east")
        folder.mkdir(parents=True, exist_ok=True)
        own = [lab.machine(f"member-{i}", site) for i in range(members)]
        urgent, crowd = lab.machine("urgent", site), lab.machine("crowd", site)
        # Where they share the primary's processors, they would have it wait for them: there all clients are alike.
        if cores == 1:
            urgent.waits_for_nobody(rank=2, share=0.5 if is_pressed else 1)
            if is_pressed:
                crowd.waits_for_nobody(share=0.5)
        for machine in own:
            machine.goes_before(32)
        lab.observe_from(site)
        pins = ["0" if cores == 1 else "0,1"] + ["1"] * (members - 1)
        started = Members(own, folder, pins=pins).start({"priority": {"mode": "off"}, "leadership": {"mode": "off"}})
        started.fill(records, value_bytes)
        yield Classed(started, urgent, crowd, pin="1" if cores == 1 else None)
