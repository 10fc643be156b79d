"""The paper's Figure 7: throughput over time while the primary is killed, and later returns."""

import time

from lab.machines import ACCOUNT, Machines
from lab.members import Load, Members
from lab.report import Quiet, conclude

VALUE_BYTES = 1000
RECORDS = 10_000
CLIENTS = 64
CORES = 0.28
CLIENT_CORES = 0.4
# As in the paper, in seconds since the load's beginning.
KILLED_AT = 10
RETURNS_AT = 40
ENDS_AT = 60


def run(folder, output):
    """Measures; there is no bound to keep here (`make bench-failover` has it)."""
    with Machines() as machines:
        site = machines.site("east")
        member_machines = [machines.machine(f"member-{i}", site, CORES) for i in range(5)]
        clients = machines.machine("clients", site, CLIENT_CORES)
        machines.observe_from(site)
        members = Members(member_machines, folder).start()
        members.fill(RECORDS, VALUE_BYTES)
        quiet = Quiet(ACCOUNT)
        load = Load(clients, members.hosts(), clients=CLIENTS, bytes=VALUE_BYTES, records=RECORDS, warmup=0, seconds=ENDS_AT)
        begun = time.monotonic()
        time.sleep(KILLED_AT)
        killed = time.monotonic()
        members.kill(0)
        time.sleep(begun + RETURNS_AT - time.monotonic())
        returned = time.monotonic()
        members.spawn(0)
        caught_up = members.await_secondary(0, ENDS_AT)
        result = load.result()
        sources = members.sources()
        primary = members.primary()
        others = quiet.others()
    interval = result["intervalSeconds"]
    series = [(index * interval, count / interval) for index, count in enumerate(result["counts"])]
    events = {"killed": killed - result["begun"], "returned": returned - result["begun"], "secondary": caught_up - result["begun"]}
    rates = {name: mean(series, begin, end) for name, begin, end in (
        ("before", 2, events["killed"] - 0.5), ("without", events["killed"] + 2, events["returned"] - 1),
        ("after", events["secondary"] + 2, ENDS_AT - 1))}
    print(f"lab: writes a second before, without and after the return of the old primary: "
          f"{({name: round(rate) for name, rate in rates.items()})}; longest gap {result['longestGapSeconds']:.3f} s; "
          f"a secondary {caught_up - returned:.1f} s after its start, fetching from {sources[0]} where {primary} is primary; "
          f"others {others:.0%}", flush=True)
    report = {"series": series, "events": events, "rates": rates, "longestGapSeconds": result["longestGapSeconds"], "others": others}
    conclude("failover", output, report, [])


def mean(series, begin, end):
    """The mean rate between two times."""
    within = [rate for at, rate in series if begin <= at < end]
    return sum(within) / len(within) if within else 0.0
