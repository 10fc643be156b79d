"""Whether a secondary keeps up: three members with the same CPU, updates as fast as the primary takes them.

The load is acknowledged by the primary alone (`w: 1`), so that it does not wait for the secondaries. A probe writes with
`w: "majority"` now and then; how long such a write waits once it is applied is what the primary itself counts
(`serverStatus().metrics.repl.majorityWaits`), and the probe is the only one that waits.
"""

import time

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
PROBE_SECONDS = 0.005


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
    samples = []
    before = majority_waits(client)
    while time.monotonic() < until:
        client.lab.command({"update": "probe", "updates": [{"q": {"_id": 0}, "u": {"$inc": {"n": 1}}, "upsert": True}],
                            "writeConcern": {"w": "majority", "j": True}})
        at, after = time.monotonic(), majority_waits(client)
        if after["num"] - before["num"] == 1:
            samples.append((at, (after["totalMicros"] - before["totalMicros"]) / 1000))
        elif after["num"] - before["num"] == 0:
            # It was committed before it came to wait.
            samples.append((at, 0.0))
        else:
            raise RuntimeError("lab: somebody else waits for a majority, too")
        before = after
        time.sleep(PROBE_SECONDS)
    return samples


def majority_waits(client):
    """What the member counts of writes that waited for a majority."""
    return client.admin.command("serverStatus")["metrics"]["repl"]["majorityWaits"]
