"""Whether a secondary keeps up: three members with the same CPU, updates as fast as the primary takes them.

The load is acknowledged by the primary alone (`w: 1`), so that it does not wait for the secondaries. A probe writes with `w: 1`,
too, and then reads with read concern `majority` after that write's time: the answer comes when the commit point has passed it. From
the one answer to the other is the commit lag, and a request's way there and back: more than the lag, never less.
"""

import time

import pymongo

from lab.load import quantile
from lab.machines import ACCOUNT, Machines
from lab.members import Load, Members
from lab.report import Quiet, Target, conclude

VALUE_BYTES = 1000
RECORDS = 10_000
CLIENTS = 64
CORES = 0.45
CLIENT_CORES = 0.5
SECONDS = 30
WARMUP_SECONDS = 3
PROBE_SECONDS = 0.02


def run(folder, output):
    """Measures, and says whether the bounds are kept."""
    with Machines() as machines:
        site = machines.site("east")
        member_machines = [machines.machine(f"member-{i}", site, CORES) for i in range(3)]
        clients = machines.machine("clients", site, CLIENT_CORES)
        machines.observe_from(site)
        members = Members(member_machines, folder).start()
        members.fill(RECORDS, VALUE_BYTES)
        load = Load(clients, members.hosts(), clients=CLIENTS, bytes=VALUE_BYTES, records=RECORDS, w=1, j="false",
                    warmup=WARMUP_SECONDS, seconds=SECONDS)
        time.sleep(WARMUP_SECONDS + 1)
        quiet = Quiet(ACCOUNT)
        begun, cpu = time.monotonic(), [machine.cpu_seconds() for machine in member_machines]
        samples = probe(members.client(0), begun + SECONDS - 2)
        seconds = time.monotonic() - begun
        cores = [(machine.cpu_seconds() - before) / seconds for machine, before in zip(member_machines, cpu)]
        others = quiet.others()
        result = load.result()
    lags = sorted(lag for _, lag in samples)
    lag_ms = {name: quantile(lags, share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1))}
    print(f"lab: {result['perSecond']:.0f} updates/s, {len(lags)} probes, lag {({k: round(v, 1) for k, v in lag_ms.items()})} ms, "
          f"cores {[round(c, 3) for c in cores]} of {CORES}, others {others:.0%}", flush=True)
    targets = [
        Target("majority commit lag at the primary's full update rate, p99, ms", 100, lag_ms["p99"], digits=0),
        Target("CPU of the busier secondary, of the primary's", 1, max(cores[1:]) / cores[0]),
    ]
    report = {"perSecond": result["perSecond"], "lagMs": lag_ms, "cores": cores, "quota": CORES, "others": others,
              "samples": [(round(at - begun, 3), round(lag, 2)) for at, lag in samples]}
    conclude("lag", output, report, targets)


def probe(client, until):
    """Pairs of a time and the commit lag found then, in milliseconds."""
    database = client.lab
    samples = []
    number = 0
    while time.monotonic() < until:
        number += 1
        written = database.command({"update": "probe", "updates": [{"q": {"_id": 0}, "u": {"$set": {"n": number}}, "upsert": True}],
                                    "writeConcern": {"w": 1, "j": False}})
        applied = time.monotonic()
        read = database.command({"find": "probe", "filter": {"_id": 0}, "readConcern": {
            "level": "majority", "afterClusterTime": written["operationTime"]}}, read_preference=pymongo.ReadPreference.PRIMARY)
        committed = time.monotonic()
        found = read["cursor"]["firstBatch"]
        if not found or found[0]["n"] != number:
            raise RuntimeError(f"lab: a majority read after write {number} found {found}")
        samples.append((applied, (committed - applied) * 1000))
        time.sleep(PROBE_SECONDS)
    return samples
