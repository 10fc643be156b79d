"""Members that meet what cannot be: entries that cannot be applied, terms that nobody reached, data of another set."""

import json
import re
import time

import bson
import pymongo
import pytest
from pymongo import ReadPreference, WriteConcern

from member import Member
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
MAJORITY = WriteConcern("majority", wtimeout=30_000)


def carts_of(client, write_concern=MAJORITY):
    """The collection that these tests write to."""
    return client.get_database("shop", write_concern=write_concern).carts


def own_status(client):
    """What the member says of itself in replSetGetStatus."""
    return next(m for m in client.admin.command("replSetGetStatus")["members"] if m.get("self"))


def log_lines(member, text):
    """The lines of a member's log that have this text, read."""
    lines = member.log_path.read_text(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and text in line]


def whole_copies(member):
    """How often a member has begun to copy everything."""
    return len(log_lines(member, "Starting initial sync attempt"))


def startup_warnings(client):
    """What the member warned of when it started."""
    return " ".join(client.admin.command("getLog", "startupWarnings")["log"])


def test_an_entry_that_cannot_be_applied_is_said_loudly_and_its_collection_fetched_anew():
    """The secondary refuses one entry again and again. Fails if it stays SECONDARY or silent meanwhile, if the set waits for it, if
    it does not get itself out of it, or if it copies more than it must."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i} for i in range(20)])
        members.await_equal()
        index = members.others(members.primary())[0]
        copies = whole_copies(members.members[index])
        with members.direct(index) as direct:
            # Each attempt is made together with other entries, and then alone; the fourth is the last.
            direct.admin.command("configureFailPoint", "failApplyingEntries", mode={"times": 8})
            carts_of(client).insert_one({"_id": "refused"})

            def is_loud():
                own = own_status(direct)
                return own if own["stateStr"] == "RECOVERING" and own["infoMessage"] else None

            own = members.await_that(is_loud, "a word about the entry that is refused")
            assert "failApplyingEntries" in own["infoMessage"] and "shop.carts" in own["infoMessage"]
            assert direct.admin.command("serverStatus")["metrics"]["repl"]["apply"]["refused"] >= 1
            carts_of(client).insert_one({"_id": "meanwhile"})
        said = log_lines(members.members[index], "An entry of the log could not be applied")
        assert said and said[0]["s"] == "E" and "shop.carts" in said[0]["attr"]["entry"]
        members.await_healthy()
        with members.direct(index) as direct:
            assert own_status(direct)["infoMessage"] == ""
        said = log_lines(members.members[index], "An entry of the log could not be applied")
        assert [line["attr"]["remedy"] for line in said] == ["tries again"] * 3 + ["fetches the collection anew"]
        assert whole_copies(members.members[index]) == copies, "everything was copied"


def test_an_entry_that_two_members_refuse_is_tried_again_and_costs_no_copy():
    """Fails if a secondary throws its data away while another has the same trouble, or does not go on once it can."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        members.await_equal()
        others = members.others(members.primary())
        for index in others:
            with members.direct(index) as direct:
                direct.admin.command("configureFailPoint", "failApplyingEntries", mode={"times": 4})
        carts_of(client, WriteConcern(1)).insert_one({"_id": 1})
        for index in others:
            with members.direct(index) as direct:
                members.await_that(lambda: own_status(direct)["stateStr"] == "RECOVERING", "RECOVERING")
        members.await_healthy()
        for index in others:
            lines = log_lines(members.members[index], "An entry of the log could not be applied")
            assert [line["attr"]["remedy"] for line in lines] == ["tries again"] * 2


def test_an_entry_of_no_one_collection_that_cannot_be_applied_ends_in_a_new_copy_of_everything():
    """A rename is refused. Fails if the member does not return, or if members differ."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i} for i in range(20)])
        members.await_equal()
        index = members.others(members.primary())[0]
        copies = whole_copies(members.members[index])
        with members.direct(index) as direct:
            direct.admin.command("configureFailPoint", "failApplyingEntries", mode={"times": 8})
        client.admin.command("renameCollection", "shop.carts", to="shop.wagons")
        client.get_database("shop", write_concern=MAJORITY).wagons.insert_one({"_id": "after"})

        members.await_that(lambda: whole_copies(members.members[index]) > copies, "a new copy of everything")
        members.await_healthy()


ABSURD = 2**63 - 1


def test_terms_and_times_that_nobody_reached_leave_the_set_its_primary():
    """A stranger speaks of a term near the end of its range, and of a log that ends in the far future, in every message that members
    know. Fails if one of them is believed: no election could follow it."""
    now = int(time.time())
    honest, future = bson.Timestamp(now, 1), bson.Timestamp(now + 400 * 24 * 3600, 1)

    def optime(ts=honest, term=1):
        return {"ts": ts, "t": bson.Int64(term)}

    def heartbeat(term=1, last=None, config_term=1):
        last = last or optime()
        return {"replSetHeartbeat": "rs0", "hbv": 1, "from": "127.0.0.1:1", "fromId": 1, "configVersion": 1,
                "configTerm": bson.Int64(config_term), "state": 2, "term": bson.Int64(term), "primaryId": -1, "writtenOpTime": last,
                "opTime": last, "durableOpTime": last, "commitPoint": optime(term=0)}

    def vote(term, last=None):
        return {"replSetRequestVotes": 1, "setName": "rs0", "dryRun": False, "term": bson.Int64(term), "candidateId": 1,
                "configVersion": 1, "configTerm": 1, "lastWrittenOpTime": last or optime(), "reason": "electionTimeout"}

    def update(term, last=None):
        last = last or optime()
        return {"replSetUpdatePosition": 1, "term": bson.Int64(term), "optimes": [
            {"memberId": 1, "durableOpTime": last, "appliedOpTime": last, "writtenOpTime": last, "ageMicros": 0}]}

    def step_up(term, last=None):
        return {"replSetStepUp": 1, "skipDryRun": True, "term": bson.Int64(term), "lastWrittenOpTime": last or optime()}

    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        primary = members.primary()
        with members.direct(primary) as direct:
            term = direct.admin.command("replSetGetStatus")["term"]
        for index in range(3):
            with members.direct(index) as direct:
                for absurd in (ABSURD, 2**31 - 1, 2**31 - 2):
                    for message in (heartbeat(absurd), heartbeat(1, optime(term=absurd)), heartbeat(1, config_term=absurd),
                                    vote(absurd), update(absurd), update(1, optime(term=absurd)), step_up(absurd)):
                        reply = direct.admin.command(message, check=False)
                        # 51024: more than a configuration can carry.
                        code = 51024 if absurd == ABSURD else 2
                        assert reply["ok"] == 0 and reply["code"] == code, (message, reply)
                for message in (heartbeat(1, optime(future)), vote(1, optime(future)), update(1, optime(future))):
                    reply = direct.admin.command(message, check=False)
                    assert reply["ok"] == 0 and reply["code"] == 205, (message, reply)
        carts_of(client).insert_one({"_id": 1})
        with members.direct(primary) as direct:
            assert direct.admin.command("replSetGetStatus")["term"] == term, "a stranger was believed"
        members.stand(members.others(primary)[0])
        carts_of(client).insert_one({"_id": 2})
        members.await_healthy()


def test_a_member_started_with_another_sets_name_waits_says_why_and_takes_no_writes(tmp_path):
    """Fails if it becomes primary of a set that has another name, or if its data are not there under the right one."""
    with Member(data=tmp_path / "data") as member:
        with member.client() as client:
            client.shop.carts.insert_one({"_id": 1})
        member.stop()
        other = Member(data=tmp_path / "data", port=member.port, replica_set="rs1")
        other.initiates = False
        other.spawn()
        with pymongo.MongoClient("127.0.0.1", other.port, directConnection=True, serverSelectionTimeoutMS=20_000) as client:
            hello = client.admin.command("hello")
            assert not hello["isWritablePrimary"] and not hello["secondary"] and "setName" not in hello
            assert "rs0" in hello["info"] and "rs1" in hello["info"]
            status = client.admin.command("replSetGetStatus")
            assert status["myState"] == 10 and "'rs0'" in status["infoMessage"]
            with pytest.raises(pymongo.errors.NotPrimaryError):
                client.shop.carts.insert_one({"_id": 2})
            # Longer than an election alone takes.
            time.sleep(1)
            assert not client.admin.command("hello")["isWritablePrimary"]
            assert "rs1" in startup_warnings(client)
            refused = client.admin.command("replSetHeartbeat", "rs0", check=False, **{
                "hbv": 1, "from": "", "fromId": -1, "configVersion": 1, "state": 2, "term": bson.Int64(1), "primaryId": -1,
                **{name: {"ts": bson.Timestamp(1, 1), "t": bson.Int64(1)}
                   for name in ("writtenOpTime", "opTime", "durableOpTime", "commitPoint")}})
            assert refused["code"] == 108, refused
        other.kill()
        member.start()
        with member.client() as client:
            assert client.shop.carts.count_documents({}) == 1


def test_a_sets_data_started_without_the_set_warn_and_leave_its_log_alone(tmp_path):
    """As mongod: writes are taken, for maintenance, and not logged. Fails if there is no warning, or if an entry is logged that would
    pass for the set's."""
    with Member(data=tmp_path / "data") as member:
        with member.client() as client:
            client.shop.carts.insert_one({"_id": 1})
        member.stop()
        alone = Member(data=tmp_path / "data", port=member.port, replica_set=None).start()
        with alone.client() as client:
            warnings = startup_warnings(client)
            assert "started without --replSet" in warnings and "TTL" in warnings
            entries = client.local["oplog.rs"].count_documents({})
            client.shop.carts.insert_one({"_id": 2})
            client.shop.carts.create_index("n")
            client.shop.more.insert_one({"_id": 1})
            assert client.local["oplog.rs"].count_documents({}) == entries
            assert client.shop.carts.count_documents({}) == 2
        alone.stop()
        member.start()
        with member.client() as client:
            assert "started without" not in startup_warnings(client)
            assert client.shop.carts.count_documents({}) == 2 and client.shop.more.count_documents({}) == 1


def test_a_set_is_initiated_without_a_version_and_its_configuration_is_there_to_read():
    """The tutorials' form. Fails if `local.system.replset` is not what replSetGetConfig says, on every member, after every change, or
    if a client can make it untrue."""
    members = ReplicaSet(2, settings=SOON)
    try:
        for index in range(2):
            members.spawn(index)
            members.await_that(lambda: members.hello(index), "an answer")
        with members.direct(0) as direct:
            direct.admin.command("replSetInitiate", {
                "_id": "rs0", "members": [{"_id": i, "host": host} for i, host in enumerate(members.hosts)]})
        members.await_states()

        def check(version):
            for index in range(2):
                with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
                    def is_shown():
                        config = direct.admin.command("replSetGetConfig")["config"]
                        return config["version"] >= version and list(direct.local["system.replset"].find()) == [config]
                    members.await_that(is_shown, f"the configuration in member {index}'s local.system.replset")

        check(1)
        with members.direct(members.primary()) as direct:
            config = direct.admin.command("replSetGetConfig")["config"]
            config["version"] += 1
            config["settings"]["heartbeatIntervalMillis"] = 300
            direct.admin.command("replSetReconfig", config)
            for write in (lambda: direct.local["system.replset"].update_one({}, {"$set": {"version": 99}}),
                          lambda: direct.local["system.replset"].insert_one({"_id": "x"}),
                          lambda: direct.local["system.replset"].delete_many({})):
                with pytest.raises(pymongo.errors.OperationFailure):
                    write()
        check(2)
    finally:
        members.__exit__(None)


def test_the_oplogs_size_is_decided_once_and_kept(tmp_path):
    """Fails if stats() do not show it, if it follows the flag or the disk of the day, or if a change does not last."""
    def megabytes(client):
        stats = client.local.command("collStats", "oplog.rs", scale=1024 * 1024)
        figures = client.admin.command("serverStatus")["rocksdb"]["oplog"]
        assert stats["maxSize"] == figures["maxBytes"] >> 20
        return stats["maxSize"], figures["minRetentionSecs"]

    member = Member(data=tmp_path / "data", arguments=["--oplogSize", "2000", "--oplogMinRetentionHours", "1"])
    with member:
        with member.client() as client:
            assert megabytes(client) == (2000, 3600)
        member.stop()
        member.arguments = []
        member.start()
        with member.client() as client:
            assert megabytes(client) == (2000, 3600)
            client.admin.command("replSetResizeOplog", 1, size=3000.0, minRetentionHours=2.0)
        member.kill()
        member.arguments = ["--oplogSize", "2500"]
        member.start()
        with member.client() as client:
            assert megabytes(client) == (3000, 7200)
            assert re.search(r"oplog.*keeps its size", startup_warnings(client))
