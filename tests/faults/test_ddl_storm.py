"""DDL from sixteen clients on four names beside writers of the same names, while members are killed: `ddl_storm.py` says what of.

`DDL_STORM_SECONDS` (40) is the length of each storm; `DDL_STORM_SEED` repeats one, as far as threads let it be repeated.
"""

import os
import random

import pytest

import ddl_storm
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
SECONDS = int(os.environ.get("DDL_STORM_SECONDS", 40))


@pytest.mark.parametrize("number", range(3))
def test_a_storm_of_ddl_and_kills_ends_the_same_on_every_member(number):
    """Fails if a command is not answered in time, or with an error that is none of its own; if members differ in the end, in
    documents, indexes or what `validate` finds; or if what a majority acknowledged is lost."""
    seed = int(os.environ.get("DDL_STORM_SEED", random.randrange(1 << 20))) + number
    with ReplicaSet(settings=SOON) as members:
        storm = ddl_storm.run(members, seed, SECONDS, kills=SECONDS // 5)
        for what in ("create", "drop", "createIndexes", "dropIndexes", "renameCollection", "collMod", "$out", "dropDatabase",
                     "convertToCapped", "insert", "kept"):
            assert storm.done.get(what), f"seed {seed}: no {what} was carried out: {storm.done}"
