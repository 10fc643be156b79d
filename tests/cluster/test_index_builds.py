"""Index builds of a set: every member builds beside its writers or its applying, and none has the index before the others can."""

import contextlib
import threading
import time

import pymongo
import pytest
from pymongo import ReadPreference, WriteConcern

from member import Member
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200, "heartbeatTimeoutSecs": 2}
# Points at which a build waits while a test wants that.
BEGUN = "hangAfterStartingIndexBuild"
SCANNING = "hangIndexBuildDuringCollectionScanPhaseBeforeInsertion"
COMMITTING = "hangIndexBuildBeforeCommit"
UNDER_WAY = {"command.createIndexes": {"$exists": True}, "desc": "IndexBuildsCoordinator"}


def a_set(count=3, **options):
    return ReplicaSet(count, settings=SOON, **options)


def fill(client, count, **fields):
    """Documents to build indexes of: `n` is unique, `owner` is not."""
    carts = client.get_database("shop", write_concern=WriteConcern(len(client.nodes) or 1, wtimeout=60_000)).carts
    for start in range(0, count, 5000):
        carts.insert_many([{"_id": i, "n": i, "owner": i % 7, "text": "x" * 40, **fields}
                           for i in range(start, min(start + 5000, count))])
    return carts


@contextlib.contextmanager
def held(members, indexes, point):
    """Builds of these members wait at a point until the end, or until `release(index)`."""
    def configure(index, mode):
        with members.direct(index) as direct:
            direct.admin.command("configureFailPoint", point, mode=mode)
    waiting = set(indexes)
    for index in indexes:
        configure(index, "alwaysOn")

    def release(*which):
        for index in which or tuple(waiting):
            waiting.discard(index)
            configure(index, "off")
    try:
        yield release
    finally:
        for index in list(waiting):
            # A dead one forgets what it was to wait for.
            if members.members[index].is_running():
                release(index)


class Creating:
    """`createIndexes` on a thread of its own, sent to one member."""

    def __init__(self, members, index, keys, **fields):
        self.members, self.index, self.keys, self.fields = members, index, keys, fields
        self.outcome = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        indexes = [{"key": {field: 1}, "name": f"{field}_1", **options} for field, options in self.keys.items()]
        try:
            with self.members.direct(self.index, retryWrites=False) as direct:
                self.outcome = direct.shop.command("createIndexes", "carts", indexes=indexes, **self.fields)
        except pymongo.errors.PyMongoError as error:
            self.outcome = error

    def ended(self, timeout_seconds=90):
        self.thread.join(timeout_seconds)
        assert not self.thread.is_alive(), f"createIndexes does not end\n{self.members.logs()}"
        return self.outcome

    def code(self):
        """The code it failed with."""
        outcome = self.ended()
        assert isinstance(outcome, (pymongo.errors.OperationFailure, pymongo.errors.NotPrimaryError)), outcome
        return outcome.details["code"]


def builds(members, index):
    """The builds under way on a member, as `currentOp` has them."""
    with members.direct(index) as direct:
        return direct.admin.command("currentOp", **UNDER_WAY)["inprog"]


def names(members, index, collection="carts"):
    """The complete indexes of a member; those being built as (name, "building")."""
    with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
        try:
            listed = direct.shop.command("listIndexes", collection, includeIndexBuildInfo=True)["cursor"]["firstBatch"]
        except pymongo.errors.OperationFailure as error:
            assert error.code == 26, error
            return set()
    return {(one["spec"]["name"], "building") if "indexBuildInfo" in one else one["spec"]["name"] for one in listed}


def await_builds(members, indexes, count=1):
    """Waits until these members build that many indexes."""
    for index in indexes:
        members.await_that(lambda index=index: len(builds(members, index)) == count, f"{count} builds on member {index}")


def entries(members, index, command):
    """The log's entries of this command, on one member."""
    with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
        return [entry["o"] for entry in direct.local["oplog.rs"].find({"op": "c", f"o.{command}": {"$exists": True}})]


def await_index(members, wanted, collection="carts"):
    """Waits until every member has these indexes and is as the others; checks them against the documents."""
    def has_them(index):
        try:
            return names(members, index, collection) == {"_id_", *wanted}
        except pymongo.errors.AutoReconnect:
            # It has just returned and is not read from before its log follows the primary's.
            return False

    for index in range(len(members.members)):
        members.await_that(lambda index=index: has_them(index), f"{wanted} on member {index}")
    members.await_healthy()


def test_a_majority_writer_goes_on_while_every_member_builds():
    """A steady majority writer is acknowledged all the while an index over 100,000 documents is built: its longest wait is a small
    part of the build's length. Fails if a secondary applies nothing while it builds."""
    # Nobody is elected because the machine is busy.
    with ReplicaSet() as members, members.client() as client:
        fill(client, 100_000)
        primary = members.primary()
        steady = client.get_database("other", write_concern=WriteConcern("majority", j=True, wtimeout=60_000)).steady
        steady.insert_one({"_id": 1})
        began = time.monotonic()
        creating = Creating(members, primary, {"n": {}, "owner": {}})
        waits = []
        while creating.thread.is_alive():
            before = time.monotonic()
            steady.update_one({"_id": 1}, {"$inc": {"n": 1}})
            waits.append(time.monotonic() - before)
        length = time.monotonic() - began
        assert creating.ended()["numIndexesAfter"] == 3
        print(f"build {length:.2f} s, {len(waits)} writes acknowledged, the longest after {max(waits):.3f} s")
        assert len(waits) >= 20 and max(waits) < length / 4, (len(waits), max(waits), length)
        await_index(members, {"n_1", "owner_1"})
        start, commit = entries(members, primary, "startIndexBuild"), entries(members, primary, "commitIndexBuild")
        assert len(start) == len(commit) == 1 and start[0]["indexBuildUUID"] == commit[0]["indexBuildUUID"]


def test_no_member_has_the_index_before_the_commit_quorum_has_built():
    """While one voting member still builds, the index is complete nowhere; with another quorum it is, and that member follows."""
    with a_set() as members, members.client() as client:
        fill(client, 300)
        primary = members.primary()
        slow = members.others(primary)[0]
        with held(members, [slow], BEGUN):
            creating = Creating(members, primary, {"n": {}})
            await_builds(members, range(3))
            members.await_that(lambda: "quorum" in builds(members, primary)[0].get("msg", ""), "the primary waits")
            time.sleep(0.5)
            assert all(names(members, index) == {"_id_", ("n_1", "building")} for index in range(3))
            with members.direct(primary) as direct:
                with pytest.raises(pymongo.errors.OperationFailure) as refused:
                    direct.shop.command("setIndexCommitQuorum", "carts", indexNames=["n_1"], commitQuorum=4)
                assert refused.value.code == 278
                with pytest.raises(pymongo.errors.OperationFailure) as refused:
                    direct.shop.command("setIndexCommitQuorum", "carts", indexNames=["other"], commitQuorum=1)
                assert refused.value.code == 27
                direct.shop.command("setIndexCommitQuorum", "carts", indexNames=["n_1"], commitQuorum="majority")
            members.await_that(lambda: names(members, primary) == {"_id_", "n_1"}, "a majority has built")
            assert names(members, slow) == {"_id_", ("n_1", "building")}
            assert creating.ended()["ok"] == 1
            # It applies nothing now, and can be stopped and asked all the same; the others elect and acknowledge.
            with members.direct(primary) as direct:
                direct.admin.command("replSetStepDown", 30)
            assert members.primary() not in (primary, slow)
            client.get_database("shop", write_concern=WriteConcern("majority", wtimeout=30_000)).carts.insert_one({"n": -1})
            assert members.hello(slow)["secondary"] and names(members, slow) == {"_id_", ("n_1", "building")}
            members.members[slow].stop()
        members.members[slow].spawn()
        await_index(members, {"n_1"})


def test_commit_quorums_of_createIndexes_are_kept_and_refused():
    """`commitQuorum` of the command: a number and 0 wait for nobody else; what no set can meet is refused (278), and any on a
    standalone (2)."""
    with a_set() as members, members.client() as client:
        fill(client, 300)
        primary = members.primary()
        others = members.others(primary)
        with held(members, others, BEGUN) as release:
            for quorum, name in [(1, "n"), (0, "owner")]:
                reply = Creating(members, primary, {name: {}}, commitQuorum=quorum, writeConcern={"w": 1}).ended()
                assert isinstance(reply, dict) and reply["commitQuorum"] == quorum, reply
            creating = Creating(members, primary, {"text": {}}, commitQuorum="majority")
            time.sleep(0.3)
            assert creating.thread.is_alive()
            release(others[0])
            assert creating.ended()["commitQuorum"] == "majority"
        assert Creating(members, primary, {"a": {}}, commitQuorum=4).code() == 278
        assert Creating(members, primary, {"a": {}}, commitQuorum="nowhere").code() == 79
        assert Creating(members, primary, {"a": {}}, commitQuorum=-1).code() == 9
        await_index(members, {"n_1", "owner_1", "text_1"})
    with Member(replica_set=None) as lone, lone.client() as client, pytest.raises(pymongo.errors.OperationFailure) as refused:
        client.shop.command("createIndexes", "carts", indexes=[{"key": {"a": 1}, "name": "a_1"}], commitQuorum=1)
    assert refused.value.code == 2


def test_a_build_outlives_a_step_down_and_the_client_finds_it_again():
    """The primary steps down in the middle of a build: its client is told so, the next primary goes on with the build, and the
    client's retry waits for it. Fails if the build ends with its primary."""
    with a_set() as members, members.client() as client:
        fill(client, 1000)
        before = members.primary()
        with held(members, range(3), BEGUN) as release:
            creating = Creating(members, before, {"n": {"unique": True}})
            await_builds(members, range(3))
            with members.direct(before) as direct:
                direct.admin.command("replSetStepDown", 30)
            assert creating.code() in (11602, 10107, 189)
            after = members.primary()
            assert after != before
            again = Creating(members, after, {"n": {"unique": True}})
            time.sleep(0.3)
            assert again.thread.is_alive()
            release()
        assert again.ended()["ok"] == 1
        await_index(members, {"n_1"})
        assert len(entries(members, after, "startIndexBuild")) == len(entries(members, after, "commitIndexBuild")) == 1


def test_a_build_outlives_its_primarys_death_and_goes_on_where_that_returns():
    """The primary is killed in the middle of its scan: the next one goes on, waits for the dead one's vote, and gets it once that
    has returned and has gone on with its own."""
    with a_set() as members, members.client() as client:
        fill(client, 3000)
        before = members.primary()
        with held(members, range(3), SCANNING) as release:
            Creating(members, before, {"n": {}})
            await_builds(members, range(3))
            for index in range(3):
                members.await_that(lambda index=index: builds(members, index)[0]["progress"]["done"] > 0, "a first batch")
            members.members[before].kill()
            after = members.primary()
            release(*members.others(before))
            members.await_that(lambda: "quorum" in builds(members, after)[0].get("msg", ""), "the next primary waits")
        members.members[before].spawn()
        await_index(members, {"n_1"})
        assert '"goesOn":true' in members.members[before].log_path.read_text()


def test_what_the_index_does_not_allow_ends_the_build_everywhere():
    """Two documents of one unique key: the client is told (11000), no member keeps the index, and the log says why."""
    with a_set() as members, members.client() as client:
        carts = fill(client, 1000)
        carts.insert_one({"_id": "twin", "n": 7})
        primary = members.primary()
        assert Creating(members, primary, {"n": {"unique": True}, "owner": {}}).code() == 11000
        await_index(members, set())
        abort = entries(members, primary, "abortIndexBuild")
        assert [one["cause"]["code"] for one in abort] == [11000] and len(abort[0]["indexes"]) == 2
        carts.delete_one({"_id": "twin"})
        assert Creating(members, primary, {"n": {"unique": True}}).ended()["ok"] == 1
        await_index(members, {"n_1"})


@pytest.mark.parametrize("how_far", ["built", "in the middle"])
def test_what_a_secondary_took_for_a_fact_is_asked_when_it_is_primary(how_far):
    """A build's primary steps down before it has seen two documents of one key. The next primary has put both in as facts, and has
    built, or is in the middle of its scan; it asks, and ends the build. Fails if it commits what it never asked."""
    with a_set() as members, members.client() as client:
        fill(client, 1000).insert_one({"_id": -1, "n": 7})
        before = members.primary()
        others = members.others(before)
        with held(members, [before], BEGUN), held(members, others if how_far != "built" else [], SCANNING) as release:
            creating = Creating(members, before, {"n": {"unique": True}})
            def is_there(one):
                return "commit entry" in one["msg"] if how_far == "built" else one["progress"]["done"] > 0
            for index in others:
                members.await_that(lambda index=index: any("msg" in one and is_there(one) for one in builds(members, index)),
                                   "a secondary has put both in")
            with members.direct(before) as direct:
                direct.admin.command("replSetStepDown", 30)
            assert creating.code() in (11602, 10107, 189)
            after = members.primary()
            release()
            members.await_that(lambda: entries(members, after, "abortIndexBuild"), "the build is given up")
        assert entries(members, after, "abortIndexBuild")[0]["cause"]["code"] == 11000
        await_index(members, set())


def test_documents_pass_a_unique_key_on_while_secondaries_build():
    """While a unique index is built, a key goes from document to document: what a secondary finds in two for a moment is no
    reason to end the build; what would be in two for good is refused to the writer."""
    with a_set() as members, members.client() as client:
        carts = fill(client, 5000)
        primary = members.primary()
        creating = Creating(members, primary, {"n": {"unique": True}})
        number = 0
        while creating.thread.is_alive() or number < 50:
            number += 1
            carts.delete_one({"_id": number})
            carts.insert_one({"_id": f"heir{number}", "n": number})
        assert creating.ended()["ok"] == 1
        with pytest.raises(pymongo.errors.DuplicateKeyError):
            carts.insert_one({"n": 4999})
        await_index(members, {"n_1"})


def test_arrays_that_come_while_an_index_is_built_are_found_by_it():
    """The first arrays under the indexed path come while the members build: the index is multikey on all of them."""
    with a_set() as members, members.client() as client:
        carts = fill(client, 1000)
        with held(members, range(3), BEGUN):
            creating = Creating(members, members.primary(), {"n": {}})
            await_builds(members, range(3))
            carts.update_many({"_id": {"$lt": 10}}, {"$set": {"n": [1, 2, 100_000]}})
        assert creating.ended()["ok"] == 1
        await_index(members, {"n_1"})
        for index in range(3):
            with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
                assert direct.shop.carts.count_documents({"n": 100_000}, hint="n_1") == 10


def test_several_builds_of_one_collection_go_on_at_once():
    """Two commands build at once, a third waits for an index of the first, and `currentOp` has both on every member."""
    with a_set() as members, members.client() as client:
        fill(client, 1000)
        primary = members.primary()
        with held(members, range(3), BEGUN):
            creating = [Creating(members, primary, {"n": {}}), Creating(members, primary, {"owner": {}, "text": {}})]
            await_builds(members, range(3), 2)
            creating.append(Creating(members, primary, {"n": {}}))
            for index in range(3):
                for one in builds(members, index):
                    assert one["msg"] == "Index Build: scanning collection" and set(one["progress"]) == {"done", "total"}, one
                    assert one["ns"] == "shop.carts" and one["command"]["indexBuildUUID"]
            time.sleep(0.2)
            assert all(one.thread.is_alive() for one in creating)
        assert all(one.ended()["ok"] == 1 for one in creating)
        await_index(members, {"n_1", "owner_1", "text_1"})


@pytest.mark.parametrize("how", ["dropIndexes", "drop", "dropDatabase", "killOp", "killOp on a secondary", "maxTimeMS"])
def test_a_build_is_ended_everywhere(how):
    """Whoever no longer wants a build ends it on all members, and nothing is left of it."""
    with a_set() as members, members.client() as client:
        fill(client, 1000)
        primary = members.primary()
        others = members.others(primary)
        limit = {"maxTimeMS": 1500} if how == "maxTimeMS" else {}
        with held(members, range(3), BEGUN) as release:
            creating = Creating(members, primary, {"n": {}, "owner": {}}, **limit)
            await_builds(members, range(3))
            with members.direct(primary) as direct:
                if how == "dropIndexes":
                    with pytest.raises(pymongo.errors.OperationFailure) as refused:
                        direct.shop.command("dropIndexes", "carts", index="n_1")
                    assert refused.value.code == 12587
                    direct.shop.command("dropIndexes", "carts", index="*")
                elif how == "drop":
                    direct.shop.drop_collection("carts")
                elif how == "dropDatabase":
                    client.drop_database("shop")
            if how.startswith("killOp"):
                victim = primary if how == "killOp" else others[0]
                with members.direct(victim) as direct:
                    direct.admin.command("killOp", op=builds(members, victim)[0]["opid"])
            assert creating.code() == {"killOp": 11601, "killOp on a secondary": 11601, "maxTimeMS": 50}.get(how, 276)
            for index in range(3):
                members.await_that(lambda index=index: not builds(members, index), f"member {index} still builds")
            release()
        wanted = set() if how in ("drop", "dropDatabase") else {"_id_"}
        for index in range(3):
            members.await_that(lambda index=index: names(members, index) == wanted, f"something is left on member {index}")
        members.await_healthy()
        # And can be had again.
        fill(client, 0)
        client.shop.carts.insert_one({"_id": "again", "n": -1})
        client.shop.carts.create_index("n")
        await_index(members, {"n_1"})


@pytest.mark.parametrize("method", ["logical", "fileCopyBased"])
def test_a_member_that_is_copied_while_an_index_is_built_builds_it_too(method):
    """A member is added while a build is under way: its copy has the build, and it ends with the index as all do."""
    with a_set(1) as members, members.client() as client:
        fill(client, 2000)
        with held(members, [0], SCANNING) as release:
            creating = Creating(members, 0, {"n": {}, "owner": {"sparse": True}})
            await_builds(members, [0])
            spare = members.spawn_spare({"initialSyncMethod": method})
            members.add(spare, votes=0, priority=0)
            members.await_that(lambda: members.hello(spare).get("secondary"), "the copy is whole")
            client.shop.carts.update_many({"_id": {"$lt": 100}}, {"$inc": {"n": 1_000_000}})
            await_builds(members, [0, spare])
            release()
        assert creating.ended()["ok"] == 1
        await_index(members, {"n_1", "owner_1"})


def test_a_build_that_sorts_on_the_disk_says_so_and_leaves_nothing_there():
    """The profile has `usedDisk` for what is more than little, and not for what is not; files and bytes are counted while they are
    there."""
    with a_set(1) as members, members.client() as client:
        fill(client, 1000)
        client.shop.few.insert_one({"n": 1})
        client.shop.command("profile", 2)
        client.shop.carts.create_index("n")
        client.shop.few.create_index("n")
        client.shop.command("profile", 0)
        used = {entry["command"]["createIndexes"]: entry.get("usedDisk")
                for entry in client.shop["system.profile"].find({"command.createIndexes": {"$exists": True}})}
        assert used == {"carts": True, "few": None}
        assert client.admin.command("serverStatus")["metrics"]["indexBulkBuilder"] == {"files": 0, "bytes": 0}


def test_a_secondary_that_restarts_in_the_middle_goes_on_with_its_build():
    """A secondary is killed in the middle of its scan. It returns, goes on from where it was, and what was written meanwhile is in
    its index."""
    with a_set() as members, members.client() as client:
        carts = fill(client, 3000)
        primary = members.primary()
        victim = members.others(primary)[0]
        with held(members, [victim], SCANNING):
            creating = Creating(members, primary, {"n": {}})
            await_builds(members, range(3))
            members.await_that(lambda: builds(members, victim)[0]["progress"]["done"] > 0, "a first batch")
            assert builds(members, victim)[0]["progress"]["total"] == 3000 and builds(members, victim)[0]["etaSecs"] >= 0
            members.members[victim].kill()
            client.shop.carts.update_many({"_id": {"$lt": 500}}, {"$inc": {"n": 1_000_000}})
            client.shop.carts.delete_many({"_id": {"$gte": 2900}})
        members.members[victim].spawn()
        assert creating.ended()["ok"] == 1
        await_index(members, {"n_1"})
        assert '"goesOn":true' in members.members[victim].log_path.read_text()
        assert carts.count_documents({"n": {"$gte": 1_000_000}}, hint="n_1") == 500


@pytest.mark.parametrize("what", ["started", "committed", "aborted", "dropped", "dropped with its database"])
def test_a_rollback_across_a_build(what):
    """A primary dies with an entry of a build that nobody else has. What it began is gone; what it completed or gave up, or dropped
    with its collection, goes on, with the next primary, and on it too once it has returned. Fails if a member keeps an index, or lacks
    one, that the others do not."""
    with a_set() as members, members.client() as client:
        fill(client, 1000)
        old = members.primary()
        others = members.others(old)

        def apply_nothing(on):
            for index in others:
                with members.direct(index) as direct:
                    direct.admin.command("configureFailPoint", "stopReplProducer", mode="alwaysOn" if on else "off")
        if what == "started":
            apply_nothing(True)
            Creating(members, old, {"n": {}})
            members.await_that(lambda: len(names(members, old)) == 2, "it has begun")
        else:
            with held(members, [old], COMMITTING) as release:
                Creating(members, old, {"n": {}, "owner": {}}, writeConcern={"w": 1})
                for index in others:
                    members.await_that(lambda index=index: any("commit entry" in one.get("msg", "") for one in builds(members, index)),
                                       "a secondary has built")
                apply_nothing(True)
                with members.direct(old) as direct:
                    if what == "committed":
                        release()
                    elif what == "aborted":
                        direct.shop.command("dropIndexes", "carts", index="*", writeConcern={"w": 1})
                    elif what == "dropped":
                        direct.shop.command("drop", "carts", writeConcern={"w": 1})
                    else:
                        direct.shop.command("dropDatabase", writeConcern={"w": 1})
                ended = {"committed": {"_id_", "n_1", "owner_1"}, "aborted": {"_id_"}}.get(what, set())
                members.await_that(lambda: names(members, old) == ended, "its own build has ended")
                members.members[old].kill()
        if what == "started":
            members.members[old].kill()
        apply_nothing(False)
        after = members.primary()
        # Its log parts from the old one's.
        with members.direct(after) as direct:
            direct.shop.carts.update_many({"_id": {"$lt": 50}}, {"$inc": {"n": 1_000_000}})
        members.members[old].spawn()
        await_index(members, set() if what == "started" else {"n_1", "owner_1"})
        assert "Rollback summary" in members.members[old].log_path.read_text()


def test_a_rollback_across_a_build_that_was_refused():
    """A primary gives a build up because of two documents of one key, and dies before anybody has that entry; but the documents of
    the next primary are others. Fails if that one believes what the dead one found, or the dead one keeps to it when it returns."""
    with a_set() as members, members.client() as client:
        fill(client, 1000)
        old = members.primary()
        others = members.others(old)
        with held(members, range(3), BEGUN) as release:
            creating = Creating(members, old, {"n": {"unique": True}}, writeConcern={"w": 1})
            await_builds(members, range(3))
            for index in others:
                with members.direct(index) as direct:
                    direct.admin.command("configureFailPoint", "stopReplProducer", mode="alwaysOn")
            with members.direct(old) as direct:
                # A writer is asked only about what the pass has come to.
                direct.get_database("shop", write_concern=WriteConcern(1)).carts.insert_one({"_id": "twin", "n": 7})
            release(old)
            assert creating.code() == 11000
            members.await_that(lambda: names(members, old) == {"_id_"}, "its own build has ended")
            members.members[old].kill()
            for index in others:
                with members.direct(index) as direct:
                    direct.admin.command("configureFailPoint", "stopReplProducer", mode="off")
            members.primary()
            release(*others)
        members.members[old].spawn()
        await_index(members, {"n_1"})
        assert client.shop.carts.count_documents({}) == 1000
        assert "Rollback summary" in members.members[old].log_path.read_text()
