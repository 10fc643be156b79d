"""Who may lead is warm before it does: mirrored reads, and what a member applies."""

import pytest
from bson.binary import UUID_SUBTYPE, Binary
from pymongo import ReadPreference
from pymongo.errors import OperationFailure

from replica_set import ReplicaSet
from test_members import SOON, Stopped

# The last one can never lead.
MEMBERS = [{"priority": 2}, {}, {"priority": 0}]


@pytest.fixture(scope="module", name="members")
def _members():
    with ReplicaSet(settings=SOON, members=MEMBERS) as members:
        members.stand(0)
        with members.client() as client:
            client.shop.get_collection("carts").insert_many([{"_id": n, "n": n} for n in range(100)])
        members.await_equal()
        yield members


def mirrored(direct):
    """serverStatus's `mirroredReads`."""
    return direct.admin.command("serverStatus", mirroredReads=1)["mirroredReads"]


def mirror(direct, **values):
    """Sets `mirrorReads`; gives what it was."""
    return direct.admin.command("setParameter", mirrorReads=values)["was"]


def test_the_parameter_is_as_mongodb_has_it_and_what_it_cannot_be_is_refused(members):
    """Fails if a value out of range or an unknown field is taken, or if the figures are there for those who do not ask."""
    with members.direct(0) as direct:
        assert direct.admin.command("getParameter", mirrorReads=1)["mirrorReads"] == {
            "samplingRate": 0.01, "maxTimeMS": 1000}
        for values, code in [({"samplingRate": 1.5}, 2), ({"samplingRate": -1}, 2), ({"samplingRate": "all"}, 14),
                             ({"maxTimeMS": -1}, 2), ({"targetedMirroring": {"samplingRate": 0.5}}, 40415)]:
            with pytest.raises(OperationFailure) as refused:
                mirror(direct, **values)
            assert refused.value.code == code, values
        assert mirror(direct, samplingRate=0.01) == {"samplingRate": 0.01, "maxTimeMS": 1000}
        assert "mirroredReads" not in direct.admin.command("serverStatus")
        with pytest.raises(OperationFailure) as refused:
            direct.shop.command("insert", "carts", documents=[{"_id": "mirrored"}], mirrored=True)
        assert refused.value.code == 40415


def test_what_is_read_from_the_primary_is_read_by_who_may_follow_and_by_nobody_else(members):
    """Each kind that is mirrored. Fails if one is not, if writes are mirrored as writes, or if a member that can never lead is sent
    any."""
    with members.direct(0) as primary, members.direct(1) as successor, members.direct(2) as never:
        carts = primary.shop.get_collection("carts")
        mirror(primary, samplingRate=1.0)
        before = [mirrored(direct) for direct in (primary, successor, never)]
        hits = successor.admin.command("serverStatus")["rocksdb"]["cache"]["recordHits"]
        done = 0
        for number in range(50):
            assert carts.find_one({"_id": number})["n"] == number
            assert primary.shop.command("count", "carts", query={"_id": number})["n"] == 1
            assert carts.distinct("n", {"_id": number}) == [number]
            carts.find_one_and_update({"_id": number}, {"$set": {"seen": 1}})
            carts.update_one({"_id": number}, {"$set": {"seen": 2}})
            done += 5
        members.await_that(lambda: mirrored(primary)["pending"] == 0, "mirrored reads on their way")
        after = [mirrored(direct) for direct in (primary, successor, never)]
        mirror(primary, samplingRate=0.0)
        assert after[0]["seen"] - before[0]["seen"] == done
        sent, dropped = (after[0][name] - before[0][name] for name in ("sent", "dropped"))
        assert sent + dropped == done and sent > 0
        assert after[0]["succeeded"] - before[0]["succeeded"] == sent, after[0]
        assert after[0]["resolved"] - before[0]["resolved"] == sent
        assert after[0]["erredDuringSend"] == before[0]["erredDuringSend"]
        assert after[1]["processedAsSecondary"] - before[1]["processedAsSecondary"] == sent
        assert after[2] == before[2], "it can never lead"
        assert successor.admin.command("serverStatus")["rocksdb"]["cache"]["recordHits"] > hits
        carts.find_one({"_id": 1})
        assert mirrored(primary)["sent"] == after[0]["sent"], "the rate is 0"
    members.await_equal()


def test_who_does_not_answer_keeps_no_client_of_the_primary_waiting(members):
    """The one that is mirrored to stands still. Fails if the primary's reads wait for it, or if more than a few are held for it."""
    with members.direct(0) as primary:
        carts = primary.shop.get_collection("carts")
        mirror(primary, samplingRate=1.0, maxTimeMS=100)
        with Stopped(members, 1):
            for number in range(500):
                assert carts.with_options(read_preference=ReadPreference.PRIMARY).find_one({"_id": number % 100})
            figures = mirrored(primary)
            assert figures["pending"] <= 65, figures
            assert figures["dropped"] >= 400, figures
        mirror(primary, samplingRate=0.0)
        members.await_that(lambda: mirrored(primary)["pending"] == 0, "mirrored reads on their way")


def records(direct):
    """How many look-ups of documents by their key were answered from memory, and how many not."""
    cache = direct.admin.command("serverStatus")["rocksdb"]["cache"]
    return cache["recordHits"], cache["recordMisses"]


def test_before_a_planned_handoff_the_successor_reads_what_the_primarys_clients_look_up():
    """Nothing is mirrored. Fails if the new primary has to look into its files for a document that was hot before, or if it has read
    what nobody looked up."""
    with ReplicaSet(settings=SOON) as members:
        first, successor = 0, 1
        members.stand(first)
        with members.client() as client:
            client.shop.get_collection("other").insert_many([{"_id": n} for n in range(1000)])
            client.shop.get_collection("carts").insert_many([{"_id": n, "page": "x" * 500} for n in range(1000)])
        members.await_equal()
        with members.direct(first) as primary, members.direct(successor) as follows:
            mirror(primary, samplingRate=0.0)
            carts = primary.shop.get_collection("carts")
            for _ in range(3):
                for number in range(200):
                    assert carts.find_one({"_id": number})
            before = records(follows)
            primary.admin.command("replSetHandoff", 1, to=members.hosts[successor])
            members.await_primary_among([successor])
            carts = follows.shop.get_collection("carts")
            for number in range(200):
                assert carts.find_one({"_id": number})
            hits, misses = (now - then for now, then in zip(records(follows), before))
            assert hits >= 200 and misses < 20, (hits, misses)
            before = records(follows)
            for number in range(500, 600):
                assert carts.find_one({"_id": number})
            assert records(follows)[1] - before[1] >= 100, "what nobody looked up is not in memory"
        log = members.members[first].log_path.read_text()
        told = [line for line in log.splitlines() if "9100020" in line]
        assert len(told) == 1 and '"read":200' in told[0].replace(" ", ""), told


def test_what_names_no_document_of_the_set_is_refused(members):
    """The command by which a primary names documents. Fails if a member takes anything for names, or stops at it."""
    uuid = Binary(bytes(16), UUID_SUBTYPE)
    with members.direct(1) as secondary:
        def warm(**fields):
            return secondary.admin.command({"batonWarm": 1, **fields})
        for fields, code in [({}, 40414), ({"collections": [uuid]}, 40414),
                             ({"collections": ["carts"], "records": b""}, 2),
                             ({"collections": [uuid], "records": b"\x00" * 7}, 2),
                             ({"collections": [uuid], "records": b"\x01" + b"\x00" * 7}, 2),
                             ({"collections": [uuid], "records": b"\x00" * 4 + b"\xff" * 4}, 2),
                             ({"collections": [], "records": b"", "timeMS": -1}, 51024),
                             ({"collections": [], "records": b"", "more": 1}, 40415)]:
            with pytest.raises(OperationFailure) as refused:
                warm(**fields)
            assert refused.value.code == code, (fields, refused.value)
        answer = warm(collections=[uuid], records=b"\x00" * 8, timeMS=1000, bytes=1000)
        assert (answer["read"], answer["had"], answer["missing"]) == (0, 0, 1)
