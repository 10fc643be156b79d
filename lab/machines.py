"""Machines of one's own on one machine: a network namespace and a cgroup each, cabled to the switch of a site.

    with Machines() as machines:
        east = machines.site("east")
        one = machines.machine("one", east, cores=0.4)
        one.start(["baton", "serve", ...], log)
        one.limit_uplink(200)

A site is a namespace of its own with a bridge in it; no cable leads from there to the host, so that no packet leaves the lab.
`enter` takes this process's thread into a site, so that it reaches the machines there. A machine's processes share a quota of CPU
per five milliseconds: short, so that having used it up costs milliseconds rather than a tenth of a second.

`limit_disk` holds what it reads and writes to a rate, and `limit_memory` what it holds, the kernel's cache of its files included.

Invariants: nothing outlives the context: processes, namespaces and cgroups go when it ends; processes also when this process is
killed, and what else a killed run has left goes when the next begins. There is one lab on a host at a time.
What it deliberately does not do: share the disk's time out (see MEMORY; a rate bounds bytes, and not how long others' syncs take);
delay anything (see proxy.py).
"""

import contextlib
import ctypes
import fcntl
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

PREFIX = "baton-lab-"
LOCK = "/run/lock/baton-lab"
CPU = pathlib.Path("/sys/fs/cgroup/cpu/baton-lab")
ACCOUNT = pathlib.Path("/sys/fs/cgroup/cpuacct/baton-lab")
BLKIO = pathlib.Path("/sys/fs/cgroup/blkio/baton-lab")
HELD = pathlib.Path("/sys/fs/cgroup/memory/baton-lab")
# A disk for each machine where the host's one disk must not be what is measured: in its memory.
MEMORY = pathlib.Path("/dev/shm/baton-lab")
PERIOD_US = 5_000
# The kernel takes no less.
QUOTA_US_MIN = 1_000
# The lab's part of the CPUs goes before that of whatever else runs on the host.
SHARES = 20 * 1024
# What of a second a machine has that waits for nobody; what is left is the others' in any case.
REAL_TIME_US = 900_000
# Set aside for benchmarks of networks (RFC 2544): nobody's own.
NETWORK = "198.18.0"
CLONE_NEWNET = 0x40000000


class CannotRun(SystemExit):
    """What the lab needs is not there; the text says what."""


def require():
    """Says clearly what is missing, if something is."""
    if os.geteuid() != 0:
        raise CannotRun("lab: this needs root, for network namespaces and cgroups: sudo make lab")
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("setpriv", "util-linux"), ("nsenter", "util-linux"), ("chrt", "util-linux")):
        if not shutil.which(tool):
            raise CannotRun(f"lab: there is no {tool}; on Debian: apt-get install {package}")
    for folder in (CPU.parent / "cpu.cfs_quota_us", ACCOUNT.parent / "cpuacct.usage", BLKIO.parent / "blkio.throttle.read_bps_device",
                   HELD.parent / "memory.limit_in_bytes"):
        if not folder.exists():
            raise CannotRun(f"lab: there is no {folder}: this needs version 1 of the cpu, cpuacct, blkio and memory cgroups")


def run(*command):
    """Runs a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def enter(namespace):
    """Takes this thread, and whatever it starts from now on, into a namespace."""
    with open(f"/run/netns/{namespace}", encoding="ascii") as handle:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(handle.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


class Site:
    """A switch. `hold` gives it the address of a machine elsewhere, for a proxy to listen at."""

    def __init__(self, name):
        self.namespace = PREFIX + name
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "add", "switch", "type", "bridge")
        for link in ("lo", "switch"):
            run("ip", "-n", self.namespace, "link", "set", link, "up")

    def hold(self, address):
        """Answers for this address."""
        run("ip", "-n", self.namespace, "address", "add", f"{address}/24", "dev", "switch")


class Machine:
    """A machine: `address` is its own in the lab."""

    def __init__(self, name, site, address, cores):
        self.name, self.site, self.address, self.cores = name, site, address, cores
        self.namespace = PREFIX + name
        self.processes = []
        cable = f"to-{name}"
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", site.namespace, "link", "add", cable, "type", "veth", "peer", "name", "uplink",
            "netns", self.namespace)
        run("ip", "-n", site.namespace, "link", "set", cable, "master", "switch", "up")
        run("ip", "-n", self.namespace, "address", "add", f"{address}/24", "dev", "uplink")
        for link in ("lo", "uplink"):
            run("ip", "-n", self.namespace, "link", "set", link, "up")
        self.groups, self.policy = [], ()
        for root in (CPU, ACCOUNT):
            self._join(root)
        self.limit_cpu(cores)

    def _join(self, root):
        """Has what is started from now on be of this machine's group there, too."""
        group = root / self.name
        if group not in self.groups:
            root.mkdir(exist_ok=True)
            group.mkdir(exist_ok=True)
            self.groups.append(group)
        return group

    def limit_disk(self, folder, mbyte_per_second):
        """How much its processes, of those started later, read and write a second on the disk that the folder lies on."""
        device = os.stat(folder).st_dev
        major, minor = os.major(device), os.minor(device)
        group = self._join(BLKIO)
        for direction in ("read", "write"):
            (group / f"blkio.throttle.{direction}_bps_device").write_text(f"{major}:{minor} {int(mbyte_per_second * 1e6)}\n")

    def limit_memory(self, mbyte):
        """How much memory its processes, of those started later, have, the kernel's cache of the files that they read included."""
        (self._join(HELD) / "memory.limit_in_bytes").write_text(str(int(mbyte * 1e6)))

    def limit_cpu(self, cores):
        """How much CPU its processes have from now on; none is as much as there is."""
        quota, burst = CPU / self.name / "cpu.cfs_quota_us", CPU / self.name / "cpu.cfs_burst_us"
        # What is left of one period may be used in the next, where the kernel knows that (5.14): work comes in bursts. It is never more than
        # the quota, and so goes before a lower one comes.
        if burst.exists():
            burst.write_text("0")
        quota.write_text("-1")
        if cores is None:
            return
        period_us = max(PERIOD_US, math.ceil(QUOTA_US_MIN / cores))
        (CPU / self.name / "cpu.cfs_period_us").write_text(str(period_us))
        quota.write_text(str(int(cores * period_us)))
        if burst.exists():
            burst.write_text(str(int(cores * period_us)))

    def goes_before(self, factor):
        """Where machines share processors, this one gets so many times what others get. It still waits for them now and then: the kernel has
        whoever runs run on for a slice, and whoever was short of time make up for it."""
        (CPU / self.name / "cpu.shares").write_text(str(1024 * factor))

    def waits_for_nobody(self, rank=1, share=1):
        """Where machines share processors, this one has them whenever it wants, as if they were its own, if no other one of a higher rank does.
        For one that does not want them for most of the time, and of what is started from now on; all such ones share what there is of that."""
        for group, runtime_us in ((CPU, REAL_TIME_US), (CPU / self.name, int(REAL_TIME_US * share))):
            runtime = group / "cpu.rt_runtime_us"
            # Without it there are no such shares, and no leave is needed.
            if runtime.exists():
                runtime.write_text(str(runtime_us))
        self.policy = ("chrt", "--rr", str(rank))

    def start(self, command, log=None, **options):
        """Starts a process on it, which dies with this one."""
        enter_groups = " && ".join(f"echo $$ >> '{group}/cgroup.procs'" for group in self.groups)
        # `ip netns exec` would mount another /sys, in which a member finds no control groups, and so takes the host for its own.
        full = ["sh", "-c", enter_groups + ' && exec "$@"', "sh", "setpriv", "--pdeathsig", "KILL",
                "nsenter", f"--net=/run/netns/{self.namespace}", *self.policy, *map(str, command)]
        if log is not None:
            with open(log, "ab") as output:
                process = subprocess.Popen(full, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)
        else:
            process = subprocess.Popen(full, **options)
        self.processes.append(process)
        return process

    def limit_uplink(self, mbit):
        """Holds what it sends to so many megabits a second; none takes the limit away."""
        subprocess.run(["tc", "-n", self.namespace, "qdisc", "del", "dev", "uplink", "root"], capture_output=True)
        if mbit:
            run("tc", "-n", self.namespace, "qdisc", "add", "dev", "uplink", "root",
                "tbf", "rate", f"{mbit}mbit", "burst", "128kb", "latency", "50ms")

    def cpu_seconds(self):
        """CPU time that its processes have used."""
        return int((ACCOUNT / self.name / "cpuacct.usage").read_text()) / 1e9

    def bytes_sent(self):
        """Bytes that have left by its link, headers included."""
        text = run("ip", "netns", "exec", self.namespace, "cat", "/proc/net/dev")
        line = next(line for line in text.splitlines() if line.strip().startswith("uplink:"))
        return int(line.split(":")[1].split()[8])


class Distance:
    """A proxy that runs."""

    def __init__(self, process):
        self._process = process

    def carried(self):
        """Bytes so far, by the namespace of the site that they came from."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class Machines:
    """See the file's header."""

    def __init__(self):
        require()
        self._lock = open(LOCK, "w", encoding="ascii")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotRun("lab: another run is under way on this host") from None
        self.machines = []
        self._helpers = []
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)

    def __enter__(self):
        # SIGTERM is to clean up like Ctrl-C.
        signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        sweep()
        for root in {CPU, ACCOUNT}:
            root.mkdir(exist_ok=True)
        (CPU / "cpu.shares").write_text(str(SHARES))
        # This process and the proxy belong to the lab, without a quota.
        for root in {CPU, ACCOUNT}:
            (root / "observer").mkdir(exist_ok=True)
            (root / "observer" / "cgroup.procs").write_text(str(os.getpid()))
        return self

    def __exit__(self, *_):
        processes = [process for machine in self.machines for process in machine.processes] + self._helpers
        for process in processes:
            if process.poll() is None:
                process.kill()
        for process in processes:
            process.wait()
        for root in {CPU, ACCOUNT}:
            (root.parent / "cgroup.procs").write_text(str(os.getpid()))
        ctypes.CDLL(None).setns(self._home, CLONE_NEWNET)
        sweep()
        os.close(self._home)
        self._lock.close()

    def site(self, name):
        """A new site."""
        return Site(name)

    def machine(self, name, site, cores=None):
        """A new machine there, with a quota of CPU if one is given."""
        machine = Machine(name, site, f"{NETWORK}.{11 + len(self.machines)}", cores)
        self.machines.append(machine)
        return machine

    def proxy(self, port, delay_ms, sites):
        """The distance between two sites, given as the machines of each; see proxy.py."""
        for here in sites:
            for there, distant in sites.items():
                for machine in distant if there is not here else ():
                    here.hold(machine.address)
        arguments = [part for site, own in sites.items()
                     for part in ("--site", f"{site.namespace}:{','.join(machine.address for machine in own)}")]
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "lab.proxy", "--delay-ms", str(delay_ms), "--port", str(port),
             *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parent.parent)
        self._helpers.append(process)
        return Distance(process)

    def observe_from(self, site):
        """Has this process reach the machines of a site, as one more of its machines."""
        site.hold(f"{NETWORK}.254")
        enter(site.namespace)


def sweep():
    """Removes all that a run leaves: processes first, then what they were in."""
    for group in CPU.glob("*/"):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                if int(pid) != os.getpid():
                    os.kill(int(pid), signal.SIGKILL)
    for root in {CPU, ACCOUNT, BLKIO, HELD}:
        for group in [*root.glob("*/"), root]:
            _remove_group(group)
    shutil.rmtree(MEMORY, ignore_errors=True)
    for line in run("ip", "netns", "list").splitlines():
        if line.startswith(PREFIX):
            run("ip", "netns", "delete", line.split()[0])


def _remove_group(group):
    # The kernel takes a moment to bury a process.
    for _ in range(200):
        if not group.exists():
            return
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.01)
    raise RuntimeError(f"{group} is still in use")
