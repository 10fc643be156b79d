"""Members of every kind: arbiters, hidden, delayed, without a vote, newly added, and those that belong elsewhere."""

import time

import pymongo
import pytest
from pymongo import ReadPreference, WriteConcern

from member import Member, free_port
from raw import Raw
from replica_set import ReplicaSet
from test_members import SOON, refusal


def eventually(condition, why, seconds=30):
    """Waits until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


def joiner(members):
    """One more process of the set, in no configuration yet."""
    member = Member(replica_set=members.name, port=free_port())
    member.initiates = False
    members.members.append(member)
    return member.spawn()


def reconfigured(direct, change):
    """Changes the set's configuration by a function and installs it."""
    config = direct.admin.command("replSetGetConfig")["config"]
    config["version"] += 1
    change(config)
    direct.admin.command("replSetReconfig", config, maxTimeMS=20_000)
    return config


def test_every_kind_of_member_says_what_it_is():
    """hello and replSetGetStatus of an arbiter, a hidden member, one without a vote and one with tags."""
    options = [{"tags": {"dc": "east"}}, {"priority": 0, "hidden": True, "tags": {"use": "reports"}},
               {"arbiterOnly": True}, {"priority": 0, "votes": 0}]
    with ReplicaSet(settings=SOON, members=options) as members, members.client() as client:
        carts = client.get_database("shop", write_concern=WriteConcern(3, wtimeout=20_000)).carts
        carts.insert_one({"_id": 1})
        hellos = [members.hello(i) for i in range(4)]
        hosts = members.hosts
        for hello in hellos:
            assert hello["hosts"] == [hosts[0]]
            assert hello["arbiters"] == [hosts[2]] and hello["passives"] == [hosts[3]]
        assert hellos[0]["tags"] == {"dc": "east"} and hellos[0]["isWritablePrimary"]
        assert hellos[1]["hidden"] and hellos[1]["passive"] and hellos[1]["tags"] == {"use": "reports"}
        assert hellos[2]["arbiterOnly"] and not hellos[2]["secondary"]
        assert hellos[3]["passive"] and hellos[3]["secondary"]
        with members.direct(0) as direct:
            status = direct.admin.command("replSetGetStatus")
            assert [member["stateStr"] for member in status["members"]] == [
                "PRIMARY", "SECONDARY", "ARBITER", "SECONDARY"]
            assert status["votingMembersCount"] == 3 and status["writableVotingMembersCount"] == 2
            assert "optime" not in status["members"][2]
        with members.direct(2, read_preference=ReadPreference.SECONDARY) as arbiter:
            assert refusal(arbiter, "find", "carts", database="shop").code == 13436
        # The arbiter's vote keeps a primary there when the hidden member goes.
        members.members[1].kill()
        client.get_database("shop", write_concern=WriteConcern(2, wtimeout=20_000)).carts.insert_one({"_id": 2})
        members.members[1].spawn()
        members.await_states()
        members.await_equal()


def test_a_delayed_member_stays_behind_and_follows():
    """secondaryDelaySecs: what was just written is not there yet, and is when it is that old; order and count are kept."""
    options = [{}, {}, {"priority": 0, "hidden": True, "secondaryDelaySecs": 2}]
    with ReplicaSet(settings=SOON, members=options) as members, members.client() as client:
        carts = client.get_database("shop", write_concern=WriteConcern("majority", wtimeout=20_000)).carts
        carts.insert_one({"_id": "old"})
        with members.direct(2, read_preference=ReadPreference.SECONDARY) as delayed:
            assert delayed.admin.command("hello")["secondaryDelaySecs"] == 2
            eventually(lambda: delayed.shop.carts.find_one({"_id": "old"}), "the delayed member does not follow")
            began = time.monotonic()
            carts.insert_many({"_id": i} for i in range(100))
            carts.update_one({"_id": 7}, {"$set": {"seen": True}})
            assert delayed.shop.carts.count_documents({"_id": {"$ne": "old"}}) == 0
            eventually(lambda: delayed.shop.carts.find_one({"_id": 7, "seen": True}), "the delayed member does not follow")
            # An entry's time is a whole second, so it may look up to one older than it is.
            assert time.monotonic() - began > 0.9
            assert delayed.shop.carts.count_documents({}) == 101
        members.await_equal()


def test_a_newly_added_member_votes_from_when_it_has_its_data():
    """replSetReconfig adds it without a vote; once it is a secondary the primary gives it one."""
    with ReplicaSet(count=1, settings=SOON) as members, members.client() as client:
        client.shop.carts.insert_many({"_id": i} for i in range(500))
        joiner(members)
        members._await_answer(1, time.monotonic() + 30)
        with members.direct(0) as direct:
            reconfigured(direct, lambda config: config["members"].append({"_id": 1, "host": members.hosts[1]}))
            eventually(lambda: direct.admin.command("replSetGetStatus")["votingMembersCount"] == 2,
                       "the new member is not given its vote")
            config = direct.admin.command("replSetGetConfig")["config"]
            assert "newlyAdded" not in config["members"][1] and config["members"][1]["votes"] == 1
        members.await_states()
        members.await_equal()


def test_a_member_of_another_set_is_refused_and_believes_nothing():
    """A host of a set of another name, or of another set of the same name, is not added; by force it is still not believed."""
    with ReplicaSet(count=1, settings=SOON) as ours, ReplicaSet(count=1, settings=SOON) as same_name, \
            ReplicaSet(count=1, name="other", settings=SOON) as other:
        with ours.direct(0) as direct, same_name.direct(0) as stranger:
            stranger.shop.carts.insert_one({"_id": "theirs"})
            direct.shop.carts.insert_one({"_id": "ours"})
            theirs = stranger.admin.command("replSetGetConfig")["config"]
            config = direct.admin.command("replSetGetConfig")["config"]
            config["version"] += 1
            for host in [same_name.hosts[0], other.hosts[0]]:
                added = {**config, "members": [*config["members"], {"_id": 1, "host": host}]}
                assert refusal(direct, "replSetReconfig", added).code == 103
            forced = {**config, "members": [*config["members"],
                                            {"_id": 1, "host": same_name.hosts[0], "votes": 0, "priority": 0}]}
            direct.admin.command("replSetReconfig", forced, force=True)

            def sees_nobody():
                member = direct.admin.command("replSetGetStatus")["members"][1]
                return member["health"] == 0

            eventually(sees_nobody, "a member of another set is taken for one of ours")
            eventually(lambda: direct.admin.command("hello")["isWritablePrimary"], "the primary was deposed")
            reply = direct.shop.command("insert", "carts", documents=[{"_id": 2}],
                                        writeConcern={"w": 2, "wtimeout": 500})
            assert reply["writeConcernError"]["code"] == 64
            assert [d["_id"] for d in stranger.shop.carts.find()] == ["theirs"]
            assert stranger.admin.command("replSetGetConfig")["config"]["members"] == theirs["members"]
            assert stranger.admin.command("hello")["isWritablePrimary"]


def test_data_of_no_set_is_replaced_and_counts_for_nothing():
    """A standalone's directory that is started as a member and added copies the set's data: its own log is of no use there."""
    with ReplicaSet(count=1, settings=SOON) as members, members.client() as client:
        client.shop.carts.insert_one({"_id": "ours"})
        member = Member(replica_set=None, port=free_port())
        member.start()
        with member.client() as alone:
            alone.shop.carts.insert_one({"_id": "theirs"})
        member.stop()
        member.replica_set, member.initiates = members.name, False
        members.members.append(member.spawn())
        members._await_answer(1, time.monotonic() + 30)
        with members.direct(0) as direct:
            reconfigured(direct, lambda config: config["members"].append({"_id": 1, "host": members.hosts[1]}))
        members.await_states()
        members.await_equal()
        with members.direct(1, read_preference=ReadPreference.SECONDARY) as direct:
            assert [d["_id"] for d in direct.shop.carts.find()] == ["ours"]


@pytest.mark.parametrize("change, code, words", [
    (lambda c: c["members"].append({"_id": 1, "host": c["members"][0]["host"]}), 103, "host"),
    (lambda c: c["members"].append({"_id": 0, "host": "127.0.0.1:1"}), 103, "_id"),
    (lambda c: c["members"][0].update(priority=0), 103, "priority"),
    (lambda c: c["members"].extend({"_id": i, "host": f"127.0.0.1:{i}"} for i in range(1, 8)), 103, "voting"),
    (lambda c: c["members"].extend({"_id": i, "host": f"127.0.0.1:{i}", "votes": 0, "priority": 0}
                                   for i in range(1, 51)), 103, "members"),
    (lambda c: c["members"].append({"_id": 1, "host": "127.0.0.1:1", "arbiterOnly": True, "priority": 2}), 103, "priority"),
    (lambda c: c["settings"].update(getLastErrorModes={"m": {"rack": 1}}), 4, "rack"),
    (lambda c: c.update(protocolVersion=2), 51024, "protocolVersion"),
    (lambda c: c.update(_id="another"), 103, "name"),
    (lambda c: c["members"].append({"_id": 1, "host": "127.0.0.1:1", "secondaryDelaySecs": 5}), 2, "secondaryDelaySecs"),
    (lambda c: c["members"].append({"_id": 1, "host": "127.0.0.1:1", "hidden": True}), 2, "hidden"),
    (lambda c: c["members"].append({"_id": 1, "host": "127.0.0.1:1", "votes": 0}), 2, "votes"),
    (lambda c: c["members"].append({"_id": 1, "host": "127.0.0.1:1", "colour": 1}), 40415, "colour"),
    (lambda c: c.update(version=c["version"] - 1), 103, "version"),
    (lambda c: c["members"][0].update(host="127.0.0.1:1"), 74, "maps to this node"),
], ids=["one host twice", "one id twice", "nobody electable", "eight voters", "51 members", "arbiter with priority",
        "unknown tag in a mode", "another protocol", "another name", "delayed and electable", "hidden and electable",
        "no vote and electable", "unknown field", "old version", "without this member"])
def test_a_configuration_that_makes_no_sense_is_refused(lone, change, code, words):
    """MongoDB's code, and a message that names the field; the configuration stays as it was."""
    with lone.direct(0) as direct:
        config = before = direct.admin.command("replSetGetConfig")["config"]
        config = {**config, "members": [dict(m) for m in config["members"]], "settings": dict(config["settings"])}
        config["version"] += 1
        change(config)
        error = refusal(direct, "replSetReconfig", config)
        assert error.code == code and words in error.message, (error.code, error.message)
        assert direct.admin.command("replSetGetConfig")["config"] == before
        assert direct.admin.command("hello")["isWritablePrimary"]


@pytest.fixture(scope="module")
def lone():
    """A set of one member."""
    with ReplicaSet(count=1, settings=SOON) as members:
        yield members


def test_a_member_knows_itself_by_another_name_for_its_host():
    """A set initiated by `localhost` of members that listen on 127.0.0.1 works, and after a restart too."""
    members = ReplicaSet(count=2, settings=SOON)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplicaSet, "hosts", property(lambda self: [f"localhost:{m.port}" for m in self.members]))
        with members, members.client() as client:
            client.get_database("shop", write_concern=WriteConcern(2, wtimeout=20_000)).carts.insert_one({"_id": 1})
            assert [members.hello(i)["me"] for i in range(2)] == members.hosts
            for member in members.members:
                member.stop()
            for member in members.members:
                member.spawn()
            members.await_states()
            client.get_database("shop", write_concern=WriteConcern(2, wtimeout=20_000)).carts.insert_one({"_id": 2})
            members.await_equal()


def test_a_member_that_starts_answers_nobody_before_it_knows_its_set():
    """From the first moment that it can be reached, whoever asks a member of a set is told so."""
    members = ReplicaSet(count=1, settings=SOON)
    with pytest.MonkeyPatch.context() as patch:
        # It finds itself by asking; that takes it longest.
        patch.setattr(ReplicaSet, "hosts", property(lambda self: [f"localhost:{m.port}" for m in self.members]))
        with members:
            for _ in range(5):
                members.kill(0)
                members.spawn(0)
                assert _first_hello(members.members[0])["setName"] == "rs0"


def _first_hello(member):
    deadline = time.monotonic() + 30
    while True:
        try:
            with Raw(member) as raw:
                return raw.command("admin", {"hello": 1})
        except ConnectionRefusedError:
            assert time.monotonic() < deadline


def test_an_initiation_that_names_nobody_here_is_refused():
    """93 if no host of it is this member, with the host in the message."""
    with Member(replica_set=None, port=free_port()) as member:
        member.stop()
        member.replica_set, member.initiates = "rs0", False
        member.spawn()
        client = pymongo.MongoClient("127.0.0.1", member.port, directConnection=True)
        config = {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": f"127.0.0.2:{member.port}"}]}
        error = refusal(client, "replSetInitiate", config)
        assert error.code == 93 and f"127.0.0.1:{member.port}" in error.message
        client.close()
