"""The paper's Figure 6: three members, what the primary sends held to 200 Mbit/s, with and without chaining.

Documents are of 32 KB and the members' disks in memory, so that the link is used up before the CPU and the host's one disk are. Nobody tells the set how to fetch: the members find that the
primary has become distant, its answers waiting in the link's queue, and one moves below the other.
"""

import time

from lab.machines import ACCOUNT, MEMORY, Machines
from lab.members import Load, Members, settle
from lab.report import Quiet, Target, conclude

MBIT = 200
VALUE_BYTES = 32_000
RECORDS = 300
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
CORES = 0.56
CLIENT_CORES = 0.3
SECONDS = 5


def run(_, output):
    """Measures, and says whether the bound is kept."""
    with Machines() as machines:
        site = machines.site("east")
        member_machines = [machines.machine(f"member-{i}", site, CORES) for i in range(3)]
        clients = machines.machine("clients", site, CLIENT_CORES)
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
                  warmup=1, seconds=SECONDS).result()
    seconds = time.monotonic() - begun
    point = {
        "clients": count,
        "perSecond": result["perSecond"],
        "latencyMs": result["latencyMs"],
        "sentMbit": (machines[0].bytes_sent() - sent) * 8 / seconds / 1e6,
        "cores": [(machine.cpu_seconds() - before) / seconds for machine, before in zip(machines, cpu)],
        "others": quiet.others(),
    }
    print(f"lab: {count} clients: {point['perSecond']:.0f}/s, p50 {result['latencyMs']['p50']:.1f} ms, "
          f"sent {point['sentMbit']:.0f} Mbit/s, cores {[round(c, 2) for c in point['cores']]}, "
          f"others {point['others']:.0%}, failures {result['failures']}", flush=True)
    return point
