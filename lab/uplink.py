"""The paper's Figure 6: three members, what the primary sends held to 200 Mbit/s, with and without chaining.

Nothing but the link is to be scarce: documents are of 32 KB, which cost less CPU for a byte than small ones, there is no quota on
CPU, and the members' disks are in memory. Nobody tells the set how to fetch: the members find that the primary has become distant,
its answers waiting in the link's queue, and one moves below the other.

A majority needs but one of the two secondaries, and without chaining their streams do not share the link evenly: for a while more
is acknowledged than the link carries to both. So what counts is what the set sustains: writes until the last member has them all.
"""

import time

from lab.machines import ACCOUNT, MEMORY, Machines
from lab.members import Load, Members, settle
from lab.report import Quiet, Target, conclude

MBIT = 200
VALUE_BYTES = 32_000
RECORDS = 300
CLIENTS = (1, 8, 64, 192)
SECONDS = 8


def run(_, output):
    """Measures, and says whether the bound is kept."""
    with Machines() as machines:
        site = machines.site("east")
        member_machines = [machines.machine(f"member-{i}", site) for i in range(3)]
        clients = machines.machine("clients", site)
        machines.observe_from(site)
        members = Members(member_machines, MEMORY).start()
        members.fill(RECORDS, VALUE_BYTES)
        member_machines[0].limit_uplink(MBIT)
        curves = {}
        for chaining in (False, True):
            members.set_chaining(chaining)
            load = {"clients": 64, "bytes": VALUE_BYTES, "records": RECORDS}
            sources = settle(members, clients, load, lambda of: (sorted(map(str, of)) != ["0", "0", "None"]) == chaining)
            print(f"lab: chaining {'on' if chaining else 'off'}, sources: {sources}", flush=True)
            curves["on" if chaining else "off"] = [
                measure(members, [*member_machines, clients], count) for count in CLIENTS]
    best = {mode: max(point["perSecond"] for point in points) for mode, points in curves.items()}
    target = Target("uplink of 200 Mbit/s: majority writes a second with chaining, of those without",
                    1.8, best["on"] / best["off"], at_least=True)
    conclude("uplink", output, {"curves": curves, "best": best, "mbit": MBIT, "valueBytes": VALUE_BYTES}, [target])


def measure(members, machines, count):
    """One point of a curve."""
    quiet = Quiet(ACCOUNT)
    cpu = [machine.cpu_seconds() for machine in machines]
    sent = machines[0].bytes_sent()
    begun = time.monotonic()
    result = Load(machines[-1], members.hosts(), clients=count, bytes=VALUE_BYTES, records=RECORDS,
                  warmup=2, seconds=SECONDS).result()
    members.await_level(60)
    seconds = time.monotonic() - begun
    sustained = sum(result["counts"]) / (time.monotonic() - result["begun"])
    point = {
        "clients": count,
        "perSecond": sustained,
        "acknowledgedPerSecond": result["perSecond"],
        "latencyMs": result["latencyMs"],
        "sentMbit": (machines[0].bytes_sent() - sent) * 8 / seconds / 1e6,
        "cores": [(machine.cpu_seconds() - before) / seconds for machine, before in zip(machines, cpu)],
        "others": quiet.others(),
    }
    print(f"lab: {count} clients: {point['perSecond']:.0f}/s sustained, {result['perSecond']:.0f}/s acknowledged, p50 {result['latencyMs']['p50']:.1f} ms, "
          f"sent {point['sentMbit']:.0f} Mbit/s, cores {[round(c, 2) for c in point['cores']]}, "
          f"others {point['others']:.0%}, failures {result['failures']}", flush=True)
    return point
