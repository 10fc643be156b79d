"""Tasks that clients do, `replSetBeginTask` and `replSetEndTask`; and `settings.leadership`, which says when they may begin."""

import datetime
import json
import socket

import bson
import pymongo
import pytest

from member import Member
from raw import Raw
from replica_set import ReplicaSet
from test_member_kinds import eventually, reconfigured
from test_members import SOON, refusal


@pytest.fixture(scope="module")
def member():
    with Member() as member:
        yield member


def alone(member_or_set, index=None):
    """A client with one connection: a task belongs to it."""
    options = {"directConnection": True, "maxPoolSize": 1, "serverSelectionTimeoutMS": 10_000}
    port = member_or_set.port if index is None else member_or_set.members[index].port
    return pymongo.MongoClient("127.0.0.1", port, **options)


def begin(client, name="nightly", kind="backup", **more):
    return client.admin.command("replSetBeginTask", 1, kind=kind, name=name, **more)


def running(client):
    tasks = client.admin.command("serverStatus")["tasks"]["running"]
    return sorted((task["kind"], task["name"]) for task in tasks if task["name"] in ("nightly", "weekly"))


def test_a_task_begins_shows_and_ends(member):
    """The answer says which member, as what, and after how long; currentOp, serverStatus and replSetGetStatus show the task."""
    with alone(member) as client:
        begun = begin(client, expectedBytes=1 << 20, maxWaitSecs=30)
        assert begun["host"].endswith(f":{member.port}")
        assert begun["role"] == "primary" and begun["handoff"] is None and 0 <= begun["waitedMs"] < 30_000
        assert running(client) == [("backup", "nightly")]
        operations = client.admin.command("currentOp")["inprog"]
        assert [op["ns"] for op in operations if op["command"].get("taskId") == begun["taskId"]] == ["nightly"]
        own = client.admin.command("replSetGetStatus")["members"][0]
        assert [(task["kind"], task["state"]) for task in own["tasks"] if task["kind"] == "backup"] == [("backup", "running")]
        assert client.admin.command("replSetEndTask", 1, taskId=begun["taskId"])["durationMs"] >= 0
        assert running(client) == []
        again = refusal(client, "replSetEndTask", 1, taskId=begun["taskId"])
        assert again.code == 211 and "taskId" in again.message


def test_a_task_ends_with_its_connection_however_that_ends(member):
    """A client that dies (its socket is reset), and one that is killed from outside by the member."""
    with alone(member) as watcher:
        client = Raw(member)
        answer = client.command("admin", {"replSetBeginTask": 1, "kind": "backup", "name": "nightly"})
        assert answer["ok"] == 1 and running(watcher) == [("backup", "nightly")]
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.socket.close()
        eventually(lambda: running(watcher) == [], "the task of a client that is gone does not end")


def test_only_the_client_that_began_a_task_ends_it(member):
    """Another connection is Unauthorized (13) unless it speaks for the session in which the task was begun."""
    with alone(member) as one, alone(member) as other:
        with one.start_session() as session:
            task = one.admin.command("replSetBeginTask", 1, kind="backup", name="nightly", session=session)["taskId"]
            refused = refusal(other, "replSetEndTask", 1, taskId=task)
            assert refused.code == 13 and "another client" in refused.message
            assert running(one) == [("backup", "nightly")]
            # As a driver may do: the same session by another connection.
            with Raw(member) as raw:
                body = {"replSetEndTask": 1, "taskId": bson.Int64(task), "lsid": session.session_id}
                assert raw.command("admin", body)["ok"] == 1
            assert running(one) == []


def test_bad_input_of_tasks_names_the_field(member):
    """What is missing, of a wrong type, unknown, out of range, or there already."""
    cases = [
        ({}, 40414, "replSetBeginTask.kind"),
        ({"kind": "backup"}, 40414, "replSetBeginTask.name"),
        ({"kind": 1, "name": "n"}, 14, "replSetBeginTask.kind"),
        ({"kind": "lunch", "name": "n"}, 2, "kind must be one of backup"),
        ({"kind": "flush", "name": "n"}, 2, "kind must be one of backup"),
        ({"kind": "backup", "name": ""}, 2, "name must have 1 to 128 bytes"),
        ({"kind": "backup", "name": "n" * 129}, 2, "name must have 1 to 128 bytes"),
        ({"kind": "backup", "name": ["n"]}, 14, "replSetBeginTask.name"),
        ({"kind": "backup", "name": "n", "expectedBytes": -1}, 51024, "expectedBytes"),
        ({"kind": "backup", "name": "n", "expectedBytes": "many"}, 14, "expectedBytes"),
        ({"kind": "backup", "name": "n", "maxWaitSecs": -1}, 2, "maxWaitSecs must be 0 to"),
        ({"kind": "backup", "name": "n", "maxWaitSecs": float("nan")}, 2, "maxWaitSecs must be 0 to"),
        ({"kind": "backup", "name": "n", "maxWaitSecs": 1e300}, 2, "maxWaitSecs must be 0 to"),
        ({"kind": "backup", "name": "n", "maxWaitSecs": True}, 14, "maxWaitSecs"),
        ({"kind": "backup", "name": "n", "expectedSecs": -1}, 2, "expectedSecs must be 0 to"),
        ({"kind": "backup", "name": "n", "frob": 1}, 40415, "replSetBeginTask.frob"),
    ]
    with alone(member) as client:
        for fields, code, words in cases:
            refused = refusal(client, "replSetBeginTask", 1, **fields)
            assert refused.code == code and words in refused.message, (fields, refused.code, refused.message)
        assert refusal(client, "replSetBeginTask", 1, kind="backup", name="n", database="shop").code == 13
        for fields, code in [({}, 40414), ({"taskId": "1"}, 14), ({"taskId": -1}, 211), ({"taskId": 1 << 62}, 211),
                             ({"taskId": 1, "frob": 1}, 40415)]:
            assert refusal(client, "replSetEndTask", 1, **fields).code == code, fields
        task = begin(client, maxWaitSecs=0)["taskId"]
        twice = refusal(client, "replSetBeginTask", 1, kind="backup", name="nightly")
        assert twice.code == 117 and "the name 'nightly' is running already" in twice.message
        client.admin.command("replSetEndTask", 1, taskId=task)


def test_a_client_that_begins_ten_thousand_tasks_has_sixteen(member):
    """The error names the limit, the member goes on, and all end with the client."""
    with alone(member) as watcher:
        client = Raw(member)
        codes = {}
        for n in range(10_000):
            answer = client.command("admin", {"replSetBeginTask": 1, "kind": "backup", "name": f"n{n}"})
            codes[answer.get("code", 0)] = codes.get(answer.get("code", 0), 0) + 1
        assert codes == {0: 16, 365: 10_000 - 16}, codes
        assert "begun 16 tasks" in answer["errmsg"], answer
        def left():
            tasks = watcher.admin.command("serverStatus")["tasks"]["running"]
            return [task["name"] for task in tasks if task["kind"] == "backup"]
        assert len(left()) == 16
        client.socket.close()
        eventually(lambda: not left(), "tasks of a client that is gone do not end")


def test_a_task_begins_on_no_arbiter_and_on_no_member_that_recovers():
    """NotPrimaryOrSecondary (13436), and nothing is left of it; the settings are those of every member."""
    options = [{}, {}, {"arbiterOnly": True}]
    settings = {**SOON, "leadership": {"mode": "off", "windows": [{"kind": "backup", "from": "22:00", "to": "04:00"}]}}
    with ReplicaSet(settings=settings, members=options) as members:
        with alone(members, 2) as arbiter:
            refused = refusal(arbiter, "replSetBeginTask", 1, kind="backup", name="n")
            assert refused.code == 13436 and "this member is Arbiter" in refused.message
        first = members.primary()
        with alone(members, 1 - first) as secondary:
            assert begin(secondary)["role"] == "secondary"
            secondary.admin.command("replSetMaintenance", True)
            refused = refusal(secondary, "replSetBeginTask", 1, kind="backup", name="weekly")
            assert refused.code == 13436 and "this member is Recovering" in refused.message
            secondary.admin.command("replSetMaintenance", False)
            eventually(lambda: begin(secondary, name="weekly"), "no task begins after the maintenance")
            assert running(secondary) == [("backup", "nightly"), ("backup", "weekly")]
        with members.direct(first) as primary:
            change_and_refuse_leadership(members, primary)


def change_and_refuse_leadership(members, primary):
    """The settings change with the configuration, on every member; what means nothing is refused and changes nothing."""
    def shown(client=primary):
        return client.admin.command("replSetGetConfig")["config"]["settings"]["leadership"]

    def is_at(index, leadership):
        with members.direct(index) as direct:
            return shown(direct) == leadership

    def set_leadership(leadership):
        reconfigured(primary, lambda config: config["settings"].update(leadership=leadership))

    days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    assert shown()["windows"] == [{"kind": "backup", "days": days, "from": "22:00", "to": "04:00"}]
    assert shown()["mode"] == "off" and shown()["ranking"] == "mrc"
    set_leadership({"mode": "always", "ranking": "score", "maxPostponeSecs": 30, "windows": []})
    changed = shown()
    assert (changed["mode"], changed["ranking"], changed["maxPostponeSecs"], changed["windows"]) == ("always", "score", 30, [])
    for index in range(3):
        members.await_that(lambda: is_at(index, changed), f"member {index} with the new settings")
    window = {"from": "02:00", "to": "04:00"}
    bad = [
        ({"frob": 1}, 40415, "settings.leadership.frob"),
        ({"mode": "sometimes"}, 2, "settings.leadership.mode must be off, always or costBased"),
        ({"ranking": "best"}, 2, "settings.leadership.ranking must be"),
        ({"ranking": "random"}, 2, "settings.leadership.ranking must be"),
        ({"maxPostponeSecs": 86_401}, 2, "settings.leadership.maxPostponeSecs must be 0 to 86400"),
        ({"maxPostponeSecs": "1"}, 14, "maxPostponeSecs"),
        ({"maxDebtBytes": 0}, 2, "settings.leadership.maxDebtBytes must be"),
        ({"cooldownSecs": -1}, 2, "settings.leadership.cooldownSecs must be"),
        ({"minTenureSecs": 86_401}, 2, "settings.leadership.minTenureSecs must be"),
        ({"maxMovesPerHour": 0}, 2, "settings.leadership.maxMovesPerHour must be"),
        ({"minGainSecs": 0}, 2, "settings.leadership.minGainSecs must be"),
        ({"minGainRatio": 0.5}, 2, "settings.leadership.minGainRatio must be"),
        ({"refusalBound": 2}, 2, "settings.leadership.refusalBound must be"),
        ({"windows": [window, {"from": "05:00", "to": "05:00"}]}, 2, "settings.leadership.windows.1.to must be"),
        ({"windows": [{**window, "days": []}]}, 2, "settings.leadership.windows.0.days must be"),
        ({"windows": [{**window, "days": ["noday"]}]}, 2, "windows.days must be"),
        ({"windows": [{"from": "2:00", "to": "04:00"}]}, 2, "windows.from must be"),
        ({"windows": [{"from": "02:00"}]}, 40414, "windows.to"),
        ({"windows": [{**window, "kind": "lunch"}]}, 2, "windows.kind must be"),
        ({"windows": [{**window, "frob": 1}]}, 40415, "windows.frob"),
        ({"windows": [window] * 65}, 2, "settings.leadership.windows must be at most 64 entries"),
    ]
    for leadership, code, words in bad:
        with pytest.raises(pymongo.errors.OperationFailure) as refused:
            set_leadership(leadership)
        assert refused.value.code == code and words in str(refused.value), (leadership, refused.value)
    assert shown() == changed


# Moves as often as a test wants them.
EAGER = {**SOON, "leadership": {"mode": "always", "minTenureSecs": 0, "cooldownSecs": 0, "maxMovesPerHour": 3600}}


def test_a_task_on_the_primary_begins_after_leadership_has_moved():
    """The answer names who took over, why, and for how long nobody took writes; the task is the old primary's, a secondary by then."""
    with ReplicaSet(settings=EAGER) as members:
        old = members.primary()
        with alone(members, old) as client:
            begun = begin(client, maxWaitSecs=30)
            assert begun["role"] == "secondary" and begun["host"] == members.hosts[old], begun
            handoff = begun["handoff"]
            assert (handoff["trigger"], handoff["rule"], handoff["rankedBy"]) == ("backup", "alwaysMoves", "mrc"), handoff
            new = members.hosts.index(handoff["to"])
            assert new != old and handoff["writeGapMs"] < 5000
            members.await_that(lambda: members.primary() == new, "the successor as primary")
            client.admin.command("replSetEndTask", 1, taskId=begun["taskId"])
            told = client.admin.command("replSetGetStatus")["handoffs"][-1]
            assert told["to"] == handoff["to"] and told["rule"] == "alwaysMoves"


def test_a_second_secondary_waits_until_the_first_is_free():
    """Of three voters one may be busy. maxWaitSecs: 0 is an error at once, which says what the task would wait for."""
    with ReplicaSet(settings=EAGER) as members:
        one, other = members.others(members.primary())
        with alone(members, one) as busy, alone(members, other) as client, alone(members, other) as watcher:
            first = begin(busy, maxWaitSecs=30)
            assert first["role"] == "secondary" and first["handoff"] is None
            for wait_secs in (0, 0.5):
                refused = refusal(client, "replSetBeginTask", 1, kind="backup", name="nightly", maxWaitSecs=wait_secs)
                assert refused.code == 262 and "maxWaitSecs" in refused.message, refused.message
            assert "confirmed" in refused.message, refused.message
            assert running(client) == [] and watcher.admin.command("serverStatus")["tasks"]["waiting"] == []
            # A client that dies while it waits is forgotten; its name is free again.
            waits = Raw(members.members[other])
            body = bson.encode({"replSetBeginTask": 1, "kind": "backup", "name": "nightly", "$db": "admin"})
            waits.message(body)
            def waiting():
                return [task["name"] for task in watcher.admin.command("serverStatus")["tasks"]["waiting"]]
            eventually(lambda: waiting() == ["nightly"], "the second task does not wait")
            waits.socket.close()
            eventually(lambda: waiting() == [], "a client that is gone still waits")
            busy.admin.command("replSetEndTask", 1, taskId=first["taskId"])
            assert begin(client, maxWaitSecs=30)["role"] == "secondary"


def test_a_compaction_waits_for_the_end_of_a_backup_of_its_member_and_a_backup_for_no_compaction():
    """Side by side both would take as long as one after the other, and it is the backup that somebody waits for."""
    large = {"kind": "compaction", "name": "weekly", "expectedBytes": 1 << 40}
    with ReplicaSet(settings=EAGER) as members:
        one = members.others(members.primary())[0]
        with alone(members, one) as operator, alone(members, one) as chore:
            begun = begin(operator, maxWaitSecs=30)
            refused = refusal(chore, "replSetBeginTask", 1, maxWaitSecs=1, **large)
            assert refused.code == 262 and "somebody waits for another task of this member" in refused.message, refused.message
            operator.admin.command("replSetEndTask", 1, taskId=begun["taskId"])
            begin(chore, maxWaitSecs=30, **large)
            begin(operator, maxWaitSecs=30)
            assert running(operator) == [("backup", "nightly"), ("compaction", "weekly")]


def test_a_backup_waits_for_its_window_and_other_tasks_do_not():
    """A window that is closed now: the error says so; it begins when the configuration has no windows any more."""
    hour = datetime.datetime.now(datetime.timezone.utc).hour
    window = {"kind": "backup", "from": f"{(hour + 3) % 24:02}:00", "to": f"{(hour + 5) % 24:02}:00"}
    leadership = {**EAGER["leadership"], "windows": [window], "maxPostponeSecs": 86_400}
    with ReplicaSet(settings={**SOON, "leadership": leadership}) as members:
        primary = members.primary()
        with alone(members, members.others(primary)[0]) as client:
            refused = refusal(client, "replSetBeginTask", 1, kind="backup", name="nightly", maxWaitSecs=2.5)
            assert refused.code == 262 and "no maintenance window of the set is open" in refused.message
            other = begin(client, kind="validate", expectedBytes=1 << 40, maxWaitSecs=30)
            client.admin.command("replSetEndTask", 1, taskId=other["taskId"])
            with members.direct(primary) as direct:
                reconfigured(direct, lambda config: config["settings"]["leadership"].update(windows=[]))
            assert begin(client, maxWaitSecs=30)["role"] == "secondary"


def test_a_task_that_waits_begins_at_the_deadline_whatever_the_policy_says():
    """maxPostponeSecs: a primary whose successors are all busy begins its own task anyway."""
    leadership = {**EAGER["leadership"], "maxPostponeSecs": 3}
    options = [{}, {"priority": 0}, {"priority": 0}]
    with ReplicaSet(settings={**SOON, "leadership": leadership}, members=options) as members:
        one = members.others(members.primary())[0]
        with alone(members, one) as busy, alone(members, members.primary()) as client:
            begin(busy, name="weekly", maxWaitSecs=30)
            begun = begin(client, maxWaitSecs=30)
            assert begun["role"] == "primary" and begun["handoff"] is None and begun["waitedMs"] >= 2000, begun


def test_a_new_member_copies_one_that_is_neither_primary_nor_busy():
    """Of three members one is primary and one runs a backup: the third is copied, though all answer at once."""
    with ReplicaSet(settings=EAGER) as members:
        one, other = members.others(members.primary())
        with members.client() as client:
            client.shop.carts.insert_many([{"_id": n, "text": "x" * 1000} for n in range(500)])
        members.await_equal()
        with alone(members, one) as busy:
            begin(busy, maxWaitSecs=30)
            spare = members.spawn_spare()
            members.add(spare)
            members.await_that(lambda: members.hello(spare).get("secondary"), "the new member as a secondary")
            lines = members.members[spare].log_path.read_text().splitlines()
            sources = [json.loads(line)["attr"]["source"] for line in lines if "Starting initial sync attempt" in line]
            assert sources == [members.hosts[other]], (sources, members.hosts[one])
