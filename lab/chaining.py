"""The paper's Figures 3 to 5: three members and the clients at one site, two members at another, chaining on and off.

A proxy delays what passes between the sites and counts its bytes. Nobody tells the set how to fetch: the second member of the far
site finds that the first is nearer than the primary.
"""

import time

from lab.machines import ACCOUNT, Machines
from lab.members import PORT, Load, Members, settle
from lab.report import Quiet, Target, conclude

DELAY_MS = 20
VALUE_BYTES = 1000
RECORDS = 10_000
CLIENTS = (1, 4, 16, 64, 128)
CORES = 0.26
CLIENT_CORES = 0.4
SECONDS = 5


def run(folder, output):
    """Measures, and says whether the bound is kept."""
    with Machines() as machines:
        east, west = machines.site("east"), machines.site("west")
        near = [machines.machine(f"east-{i}", east, CORES) for i in range(3)]
        far = [machines.machine(f"west-{i}", west, CORES) for i in range(2)]
        clients = machines.machine("clients", east, CLIENT_CORES)
        proxy = machines.proxy(PORT, DELAY_MS, {east: near, west: far})
        machines.observe_from(east)
        members = Members([*near, *far], folder).start()
        members.fill(RECORDS, VALUE_BYTES)
        curves = {}
        for chaining in (False, True):
            members.set_chaining(chaining)
            load = {"clients": 16, "bytes": VALUE_BYTES, "records": RECORDS}
            sources = settle(members, clients, load, lambda of: (of[4] == 3 or of[3] == 4) == chaining)
            print(f"lab: chaining {'on' if chaining else 'off'}, sources: {sources}", flush=True)
            curves["on" if chaining else "off"] = [
                measure(members, clients, proxy, east.namespace, count) for count in CLIENTS]
    per_write = {mode: points[-1]["crossedPerWrite"] for mode, points in curves.items()}
    target = Target("bytes from the primary's site to the other with chaining, of those without",
                    0.5, per_write["on"] / per_write["off"])
    report = {"curves": curves, "crossedPerWrite": per_write, "delayMs": DELAY_MS, "valueBytes": VALUE_BYTES}
    conclude("chaining", output, report, [target])


def measure(members, clients, proxy, site, count):
    """One point of both curves."""
    updates = members.updates(0)
    # What asks the members how they are crosses, too.
    members.forget_clients()
    quiet = Quiet(ACCOUNT)
    crossed = proxy.carried()[site]
    begun = time.monotonic()
    result = Load(clients, members.hosts(), clients=count, bytes=VALUE_BYTES, records=RECORDS,
                  warmup=1.5, seconds=SECONDS).result()
    # What is on its way arrives.
    time.sleep(0.5)
    crossed, seconds = proxy.carried()[site] - crossed, time.monotonic() - begun
    updates = members.updates(0) - updates
    point = {
        "clients": count,
        "perSecond": result["perSecond"],
        "latencyMs": result["latencyMs"],
        "crossedPerWrite": crossed / updates,
        "crossedMbytePerSecond": crossed / updates * result["perSecond"] / 1e6,
        "others": quiet.others(),
    }
    print(f"lab: {count} clients: {point['perSecond']:.0f}/s, p50 {result['latencyMs']['p50']:.1f} ms, "
          f"p90 {result['latencyMs']['p90']:.1f} ms, {point['crossedPerWrite']:.0f} bytes crossed a write "
          f"({seconds:.1f} s), others {point['others']:.0%}, failures {result['failures']}", flush=True)
    return point
