"""Kills a member again and again while it is written to, and checks after every restart that nothing it promised is lost.

A kill is a SIGKILL at a random moment (some of them while the member starts), or one that the member gives itself at a
named crash point of storage (`points.py`), which needs a binary with the feature
`crash-points`; every point there is gets its turn. After some of the kills the files also lose what was never synced
(`power.py`), as they could with the power.

What is checked after each:
- every acknowledged write is there (after a loss of power: every one that was acknowledged as durable), every document
  is whole, and of what was sent last either all of a document or nothing is there (`model.py`, `load.py`);
- the oplog's OpTimes rise, its entries make exactly the collections, catalog included (`replay.py`);
- retryable writes sent again are done once, and answered as before;
- `validate {full: true}` finds nothing on any collection, not even a counter to mend.

What it deliberately does not do: tear writes or flip bits, or undo the creation of files.
"""

import argparse
import random
import signal
import subprocess
import sys
import time

import load
from member import Member, MemberDied
from points import of_a_member_alone
from power import Ledger
from replay import OplogFault, Replay

KILLS_PER_DIRECTORY = 12
RANDOM_PER_POINT_RUN = 3 / 5
# Up to which pass a point kills, where it is passed often. The others: at the first or second.
PASSES = {"log-switch,commit": 3, "commit": 300, "index-build-batch": 3, "copy-batch": 3, "freeing": 1, "flush": 6, "compaction": 3}


def schedule(kills, with_points, draw):
    """What kills, in order: a point's name, "random" or "start" (while the member starts)."""
    points = of_a_member_alone() if with_points else []
    truncating = [name for name in points if name.startswith("oplog-truncation")]
    points = [name for name in points if name not in truncating]
    wanted = max(len(points), kills - round(kills * RANDOM_PER_POINT_RUN) - len(truncating)) if points else 0
    # Commits are what there is most of: they get the turns that are left.
    commits = [name for name in points if name.startswith("commit")]
    turns = points + [draw.choice(commits) for _ in range(wanted - len(points))]
    turns += ["start" if n % 8 == 7 else "random" for n in range(kills - len(turns) - len(truncating))]
    draw.shuffle(turns)
    return turns, truncating


class Life:
    """One data directory, and those who write to it."""

    def __init__(self, seed, with_power, arguments=()):
        self.random = random.Random(seed)
        self.member = Member(arguments=["--http", "false", "--cacheSizeGB", "0.1", *arguments])
        self.ledger = Ledger(self.member.data) if with_power else None
        self.truncated = "--oplogSize" in arguments
        load.Contender.keys_acknowledged.clear()
        self.clients = [load.Writer(n, seed + n) for n in range(3)]
        self.clients += [load.Contender(seed + 10 + n) for n in range(2)]
        self.clients += [load.Retrier(n, seed + 20 + n) for n in range(2)]
        self.clients += [load.Builder(seed + 30)]
        self.replay = Replay()
        self.bytes_lost = 0
        self.start()
        with self.member.client() as client:
            load.prepare(client)
            client.admin.command("fsync")
            self.replay.load(client)

    def environment(self, point=None):
        """What the member is started with; with a point, it is to die there."""
        environment = self.ledger.environment() if self.ledger else {}
        if point:
            most = next((passes for prefix, passes in PASSES.items() if point.startswith(prefix)), 2)
            if point.startswith("recovery"):
                most = 1
            environment["BATON_CRASH_AT"] = f"{point}:{self.random.randint(1, most)}"
        return environment

    def start(self, point=None):
        """Starts the member."""
        self.member.start(self.environment(point))

    def crash(self, how):
        """Lets the member die under load; gives what was wrong with that."""
        starting = how == "start" or how.startswith("recovery")
        if how not in ("random", "start") and not starting:
            self.member.stop()
            try:
                self.start(how)
            except MemberDied:
                # The first write of all, the term's, may be the one to die at.
                return [] if self.died() else [f"the member did not start:\n{self.member.log()}"]
        for client in self.clients:
            client.start(self.member)
        if how in ("random", "start") or starting:
            time.sleep(self.random.uniform(0.05, 1.2))
            self.member.kill()
        elif not self.dies(30):
            return [f"the crash point {how} was not reached in 30 s of load"]
        for client in self.clients:
            client.join()
        if starting:
            self.lose_power(0.3)
            self.member.spawn(self.environment(how if how != "start" else None))
            if how == "start":
                time.sleep(self.random.uniform(0.0, 0.15))
                self.member.kill()
            elif not self.dies(30):
                return [f"the crash point {how} was not reached while starting"]
        return []

    def died(self):
        """Whether the member has killed itself."""
        return self.member.process.poll() == -signal.SIGKILL

    def dies(self, timeout_seconds):
        """Waits for the member to kill itself."""
        try:
            self.member.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        if not self.died():
            raise MemberDied(f"the member ended with {self.member.process.returncode}:\n{self.member.log()}")
        return True

    def lose_power(self, probability):
        """Perhaps loses what was never synced; tells whether."""
        if self.ledger is None or self.random.random() >= probability:
            return False
        self.bytes_lost += self.ledger.lose_unsynced(self.random)
        return True

    def check(self, lost_power):
        """Restarts and compares; gives the faults."""
        self.start()
        faults = []
        with self.member.client(retryWrites=False) as client:
            try:
                followed = self.replay.follow(client)
                if followed:
                    faults += self.replay.differences(client)
                elif not self.truncated:
                    faults.append("the beginning of the oplog is gone")
            except OplogFault as fault:
                faults.append(f"oplog: {fault}")
            faults += validate(client)
            faults += self.ledger.faults() if self.ledger else []
            for writer in self.clients:
                faults += writer.faults + writer.settle(client, lost_power)
                writer.faults.clear()
            if faults or not followed:
                client.admin.command("fsync")
                self.replay.load(client)
        return faults

    def end(self, keep):
        """Removes the directory, or says where it is."""
        if keep:
            self.member._owned = False
            print(f"the data directory is kept: {self.member.data}")
        self.member.remove()
        if self.ledger:
            self.ledger.close()


def validate(client):
    """The faults that `validate` finds anywhere."""
    faults = []
    for db in client.list_database_names():
        for info in client[db].list_collections():
            if info["type"] != "collection":
                continue
            report = client[db].command("validate", info["name"], full=True)
            if not report["valid"] or report["warnings"]:
                faults.append(f"validate {db}.{info['name']}: {report['errors'] + report['warnings']}")
    return faults


def main():
    """Runs the kills; exit code 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--points", action="store_true", help="the binary has the feature crash-points")
    parser.add_argument("--at", metavar="PREFIXES", help="let every kill be at a point whose name begins so (several: a comma), in turns")
    parser.add_argument("--no-power", action="store_true", help="never lose what was not synced")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    draw = random.Random(options.seed)
    turns, truncating = schedule(options.kills, options.points, draw)
    if options.at:
        chosen = [name for name in of_a_member_alone() if name.startswith(tuple(options.at.split(",")))]
        turns, truncating = [chosen[n % len(chosen)] for n in range(options.kills)], []
        draw.shuffle(turns)
    lives = [(turns[n:n + KILLS_PER_DIRECTORY], ()) for n in range(0, len(turns), KILLS_PER_DIRECTORY)]
    if truncating:
        lives.append((truncating, ("--oplogSize", "1")))
    print(f"crash test: {sum(len(l[0]) for l in lives)} kills, seed {options.seed}", flush=True)
    started, kills, losses, acknowledged, lost_bytes, faulty = time.monotonic(), 0, 0, 0, 0, 0
    for number, (hows, arguments) in enumerate(lives):
        life = Life(options.seed + 1000 * number, not options.no_power, arguments)
        bad = False
        for how in hows:
            lost_power = False
            faults = life.crash(how)
            if not faults:
                # There the loss of power alone can do harm.
                lost_power = life.lose_power(1.0 if how.startswith("log-switch") else 0.5)
                losses += lost_power
                # A death while starting may have lost power before the second death: then as much may be gone.
                faults = life.check(lost_power or how == "start" or how.startswith("recovery"))
            kills += 1
            for fault in faults[:20]:
                print(f"kill {kills} ({how}{', power lost' if lost_power else ''}): {fault[:2000]}", flush=True)
            if faults:
                bad = True
                break
        acknowledged += sum(client.acknowledged for client in life.clients)
        lost_bytes += life.bytes_lost
        faulty += bad
        life.end(bad)
        print(f"  {kills} kills, {acknowledged} writes acknowledged, {time.monotonic() - started:.0f} s", flush=True)
    print(f"crash test: {kills} kills ({losses} with the power lost, {lost_bytes} bytes of it), {acknowledged} writes "
          f"acknowledged: {'FAILED' if faulty else 'nothing promised was lost'} (seed {options.seed})")
    sys.exit(1 if faulty else 0)


main()
