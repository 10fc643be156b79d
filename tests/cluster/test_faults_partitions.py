"""Networks that carry only some of what is sent: one primary commits, whoever believes otherwise acknowledges nothing.

The cuts are those of `network.Network`; tests speak to members past them. Numbers as in the matrix of faults
(docs/testing.md).
"""

import threading

import bson
import pytest
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import NotPrimaryError

from raw import Raw
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
MAJORITY = WriteConcern("majority", wtimeout=30_000)


def carts_of(client, write_concern=MAJORITY):
    """The collection that these tests write to."""
    return client.get_database("shop", write_concern=write_concern).carts


def not_acknowledged(reply):
    """Whether a reply to a write leaves open that a majority has it, or says that it has not."""
    return not reply["ok"] or "writeConcernError" in reply


def write(raw, command, wtimeout):
    """Runs a write at majority on one member, whatever that believes to be."""
    return raw.command("shop", {**command, "writeConcern": {"w": "majority", "wtimeout": wtimeout}})


@pytest.mark.parametrize("first", ["read", "write"])
def test_07_08_a_deposed_primary_that_is_still_pulled_from_commits_nothing(first):
    """The old primary hears nobody, but one member still pulls its entries; the third elects another with it. Fails if pulled
    counts as acknowledged, if a write that changes nothing is acknowledged, or a linearizable read answered, by what was
    committed before, or if the old primary goes on when it hears of the new term."""
    with ReplicaSet(settings=SOON, network=True) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": "x", "n": 1})
        members.await_equal()
        old = members.primary()
        puller, third = members.others(old)
        with members.direct(puller) as direct:
            direct.admin.command("replSetSyncFrom", members.hosts[old])
        members.network.cut(puller, old)
        members.network.cut(third, old)
        members.network.cut(old, third)
        with Raw(members.members[old]) as raw:
            read = {"find": "carts", "filter": {"_id": "x"}, "readConcern": {"level": "linearizable"}, "maxTimeMS": 300}
            same = {"update": "carts", "updates": [{"q": {"_id": "x"}, "u": {"$set": {"n": 1}}}]}
            # All that there is was committed: what comes first has nothing but its own proof to wait for.
            if first == "read":
                assert not raw.command("shop", read)["ok"], "true only as far as this member knows"
            assert not_acknowledged(write(raw, same, 300))
            nothing = {"delete": "carts", "deletes": [{"q": {"_id": "nobody"}, "limit": 1}]}
            assert not_acknowledged(write(raw, nothing, 300))
            assert not_acknowledged(write(raw, {"insert": "carts", "documents": [{"_id": "uncommitted"}]}, 300))
            # A read waits for nobody, also one that could have written.
            count = {"aggregate": "carts", "pipeline": [{"$count": "n"}], "cursor": {}, "maxTimeMS": 20_000}
            assert raw.command("shop", {**count, "$readPreference": {"mode": "secondaryPreferred"}})["ok"]
            members.write_on_primary_among([puller, third], lambda direct: carts_of(direct).update_one(
                {"_id": "committed"}, {"$set": {"n": 1}}, upsert=True))
            members.write_on_primary_among([puller, third], lambda direct: carts_of(direct).update_one(
                {"_id": "x"}, {"$set": {"n": 2}}))
            assert not_acknowledged(write(raw, same, 300))
        members.network.heal()
        members.await_healthy()
        assert carts_of(client).find_one("x")["n"] == 2
        assert carts_of(client).find_one("committed")
        terms = members.check_terms()
        assert terms[max(terms)] != old or len(terms) > 2, "the old primary went on in its term"


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_09_a_primary_cut_off_one_way_or_both_is_replaced_by_one_that_commits(direction):
    """Fails if two members acknowledge at majority, if a primary that is not heard, or does not hear, stays, or if the one cut
    off has to be restarted."""
    with ReplicaSet(settings=SOON, network=True) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        old = members.primary()
        members.network.isolate(old, direction)
        with Raw(members.members[old]) as raw:
            reply = write(raw, {"insert": "carts", "documents": [{"_id": "old"}]}, 300)
        assert not_acknowledged(reply)
        members.write_on_primary_among(members.others(old), lambda direct: carts_of(direct).update_one(
            {"_id": "new"}, {"$set": {"n": 1}}, upsert=True))
        members.await_that(lambda: not members.hello(old).get("isWritablePrimary"), "the old primary's end")
        members.network.heal()
        members.await_healthy()
        assert carts_of(client).find_one("new")
        # Who still heard the old primary may have pulled the write that nobody acknowledged, and kept it.
        assert direction == "in" or not carts_of(client).find_one("old")


def source_of(members, index):
    """Whom a member fetches from, as an index; None for nobody."""
    with members.direct(index) as direct:
        source = direct.admin.command("replSetGetStatus")["syncSourceHost"]
    return members.hosts.index(source) if source else None


def test_10_the_middle_of_a_chain_dies_and_its_end_fetches_elsewhere():
    """Fails if the end of the chain waits for the dead, or if two members fetch from each other."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        first = members.primary()
        middle, last = members.others(first)

        def chained():
            with members.direct(last) as direct:
                direct.admin.command("replSetSyncFrom", members.hosts[middle])
            carts_of(client).update_one({"_id": 0}, {"$inc": {"n": 1}})
            return source_of(members, last) == middle and source_of(members, middle) == first

        members.await_that(chained, "a chain")
        members.kill(middle)
        carts_of(client).insert_one({"_id": 1})
        assert source_of(members, last) != middle
        members.spawn(middle)
        members.await_states()
        carts_of(client).insert_one({"_id": 2})
        members.await_healthy()
        primary = members.primary()
        sources = {index: source_of(members, index) for index in members.others(primary)}
        for index in sources:
            seen = {index}
            while index != primary and sources[index] is not None:
                index = sources[index]
                assert index not in seen, f"a circle: {sources}"
                seen.add(index)


def insert_once_more_if_refused(client, document):
    """The driver asks twice what it knows of a member that it has chosen: who has ceased to be primary in between is asked without a
    number to retry by, and what that refuses comes to its caller."""
    try:
        carts_of(client).insert_one(document)
    except NotPrimaryError:
        carts_of(client).insert_one(document)


def test_15_two_candidates_and_one_primary_a_term():
    """Both secondaries are told to stand at once, again and again, without asking first. Fails if a member votes twice in a
    term, if a candidate counts votes of another term, or if one that loses to a higher term never says so."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        answered = []
        for number in range(4):
            insert_once_more_if_refused(client, {"_id": number})

            def stand(index):
                with members.direct(index, socketTimeoutMS=30_000) as direct:
                    reply = direct.admin.command("replSetStepUp", 1, skipDryRun=True, check=False)
                    assert reply["ok"] or reply["code"] == 125, reply
                    answered.append(index)

            threads = [threading.Thread(target=stand, args=(index,)) for index in members.others(members.primary())]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        assert len(answered) == 8, answered
        insert_once_more_if_refused(client, {"_id": "last"})
        members.await_healthy()
        assert carts_of(client).count_documents({}) == 5
        assert len(members.check_terms()) > 1, "nobody was elected"


def test_17_a_reconfiguration_and_a_fail_over_together():
    """A primary that is cut off takes a vote away, so that one other member would be its majority; the others elect another by
    the old configuration. Fails if both commit: the quorums of neighbouring configurations overlap."""
    with ReplicaSet(settings=SOON, network=True) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        old = members.primary()
        with members.direct(old) as direct:
            config = direct.admin.command("replSetGetConfig")["config"]
        members.network.isolate(old)
        config["version"] += 1
        without = members.others(old)[0]
        config["members"][without].update(votes=0, priority=0)
        with Raw(members.members[old]) as order, Raw(members.members[old]) as raw:
            order.message(bson.encode({"replSetReconfig": config, "maxTimeMS": 1000, "$db": "admin"}))
            reply = write(raw, {"insert": "carts", "documents": [{"_id": "old"}]}, 500)
            assert not_acknowledged(reply)
            members.write_on_primary_among(members.others(old), lambda direct: carts_of(direct).update_one(
                {"_id": "new"}, {"$set": {"n": 1}}, upsert=True))
            reply = write(raw, {"insert": "carts", "documents": [{"_id": "late"}]}, 300)
            assert not_acknowledged(reply)
        members.network.heal()
        members.await_healthy()
        assert {document["_id"] for document in carts_of(client).find()} == {0, "new"}

        def configurations():
            found = set()
            for index in range(3):
                with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
                    config = direct.admin.command("replSetGetConfig")["config"]
                    found.add((config["term"], config["version"], sum(m["votes"] for m in config["members"])))
            return found if len(found) == 1 else None

        assert members.await_that(configurations, "one configuration").pop()[2] == 3
