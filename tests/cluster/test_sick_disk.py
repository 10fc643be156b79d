"""A disk that fails slowly: its syncs take long, and none fails."""

import json
import threading
import time

from pymongo import WriteConcern

from machine_faults import MachineFaults
from replica_set import ReplicaSet
from test_members import SOON

# A second move may follow soon.
LEADERSHIP = {"leadership": {"cooldownSecs": 1, "minTenureSecs": 1}}
# What is usual is known after thirty seconds of syncs.
USUAL_SECONDS = 36
SLOW_MILLISECONDS = 80


class Writer:
    """Writes all the time, as long as this context lasts, and remembers what was acknowledged."""

    def __init__(self, members):
        self.client = members.client()
        self.acknowledged = 0
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        carts = self.client.shop.get_collection("carts", write_concern=WriteConcern("majority", j=True))
        while not self.ends.is_set():
            carts.insert_one({"_id": self.acknowledged})
            self.acknowledged += 1
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()
        self.client.close()


def test_a_primary_whose_disk_fails_slowly_hands_over_and_one_among_slow_ones_does_not():
    """Fails if the sick one stays primary, if it moves for another reason, if it takes an election timeout, or if the set moves on
    when all disks are as slow: that would help nobody."""
    faults = [MachineFaults() for _ in range(3)]
    with ReplicaSet(settings={**SOON, **LEADERSHIP}, environments=[fault.environment() for fault in faults]) as members:
        sick = members.primary()
        with Writer(members) as writer:
            time.sleep(USUAL_SECONDS)
            with members.direct(sick) as client:
                for number in list(range(50)) * 3:
                    assert client.shop.carts.find_one({"_id": number})
            assert members.primary() == sick, "it moved while nothing was wrong"
            faults[sick].slow_syncs(SLOW_MILLISECONDS)
            members.await_that(lambda: members.primary() != sick, "another primary", timeout_seconds=60)
            after = members.primary()
            with members.direct(sick) as client:
                def move_whose_end_was_heard():
                    move = client.admin.command("replSetGetStatus")["handoffs"][-1]
                    return "to" in move and move
                move = members.await_that(move_whose_end_was_heard, "news of the new primary")
            assert (move["trigger"], move["to"]) == ("diskSlow", members.hosts[after]), move
            warmed = [line for line in members.members[sick].log_path.read_text().splitlines() if '"id":9100020' in line]
            assert len(warmed) == 1, "the successor was to read what was hot before it leads"
            attributes = json.loads(warmed[0])["attr"]
            assert attributes["read"] + attributes["had"] >= 50 and attributes["host"] == members.hosts[after], attributes
            for fault in faults:
                fault.slow_syncs(SLOW_MILLISECONDS)
            written = writer.acknowledged
            time.sleep(20)
            assert members.primary() == after, "all are as slow"
            assert writer.acknowledged > written
            for fault in faults:
                fault.slow_syncs(0)
        with members.client() as client:
            assert client.shop.carts.count_documents({}) == writer.acknowledged
        members.await_healthy()
