"""What members' step machines did during the last minute is written to files, and stepped through again."""

import json
import re
import signal

import pymongo
import pytest
from pymongo import WriteConcern

import step_files
from member import Member
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
MAJORITY = WriteConcern("majority", wtimeout=30_000)
MACHINES = ["consensus", "following", "leadership"]


def carts_of(client, write_concern=MAJORITY):
    """The collection that these tests write to."""
    return client.get_database("shop", write_concern=write_concern).carts


def by_command(members, index):
    """Has a member write its file; returns what it answers."""
    with members.direct(index) as client:
        return client.admin.command("replSetWriteSteps")


def by_signal(members, index):
    """The same by SIGUSR2; returns the file."""
    member = members.members[index]
    before = step_files.files_of(member)
    member.process.send_signal(signal.SIGUSR2)
    return members.await_that(lambda: [path for path in step_files.files_of(member) if path not in before], "a file after SIGUSR2")[0]


def test_what_members_did_is_written_down_and_replayed_as_recorded():
    """Writes, a handoff, a rollback and a fail-over. Fails if an input, an effect or a change of a machine is not recorded, or does not
    come back from the file as it was; and if a file from which a step was taken out passes, too."""
    with ReplicaSet(settings=SOON, network=True) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i} for i in range(100)])
        first = members.primary()
        with members.direct(first) as direct:
            direct.admin.command("replSetHandoff", 1, to=members.hosts[members.others(first)[0]])
        old = members.primary()
        members.await_equal()
        members.network.isolate(old)
        with members.direct(old) as direct:
            carts_of(direct, WriteConcern(1)).insert_one({"_id": "lost"})
        new = members.await_primary_among(members.others(old))
        # Who was cut off may believe for another moment that it leads, and the client is not cut off from it.
        members.await_that(lambda: "%s:%s" % (client.primary or ("", "")) == members.hosts[new], "news of the new primary")
        carts_of(client).insert_one({"_id": "kept"})
        members.network.heal()
        members.await_states()
        members.await_equal()
        dead = members.primary()
        rolled_back = by_command(members, old)
        members.kill(dead)
        members.await_primary_among(members.others(dead))
        carts_of(client).insert_many([{"_id": f"later {i}"} for i in range(100)])
        members.spawn(dead)
        members.await_healthy()

        third = next(index for index in range(3) if index not in (old, dead))
        answer = by_command(members, dead)
        assert answer["machines"] == MACHINES
        for path, steps in ((answer["file"], answer["steps"]), (rolled_back["file"], rolled_back["steps"])):
            assert step_files.replay(path)[1] == steps > 50
        assert step_files.replay(by_signal(members, third))[1] > 50

        told, steps = step_files.replay(rolled_back["file"], "--machine", "following", "--verbose")
        assert '"TakeAway"' in told and told.count("\n    -> ") == steps, "the rollback is not in it"
        everything = step_files.replay(by_signal(members, old), "--verbose")[0]
        assert '"Gossip"' in everything and '"PersistVote"' in everything

        path = members.members[old].data / "changed.jsonl"
        lines = open(rolled_back["file"], encoding="utf-8").read().splitlines()
        left_out = next(n for n, line in enumerate(lines) if '"TakeAway"' in line)
        path.write_text("\n".join(lines[:left_out] + lines[left_out + 1:]), encoding="utf-8")
        done = step_files.run(path)
        assert done.returncode == 1 and "following, step" in done.stderr, done


def test_what_members_did_while_they_built_an_index_is_replayed_as_recorded():
    """One index is complete once all three have voted; another is given up, since two documents have one key. Fails if a step of
    a build's machine is not recorded, if a build that has ended is not kept, if a document's values come into the file, or if a
    vote that was taken out or a task that was changed goes unnoticed."""
    # Nobody is elected because the machine is busy.
    with ReplicaSet() as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i, "owner": i % 7, "name": f"person {i % 50}"} for i in range(1000)])
        by_owner = {"key": {"owner": 1}, "name": "owner_1"}
        client.shop.command("createIndexes", "carts", indexes=[by_owner], commitQuorum="votingMembers")
        with pytest.raises(pymongo.errors.DuplicateKeyError):
            carts_of(client).create_index("name", unique=True)
        members.await_equal()
        primary = members.primary()
        for index in range(3):
            answer = by_command(members, index)
            builds = [machine for machine in answer["machines"] if machine.startswith("index_build ")]
            assert [machine.split()[2] for machine in builds] == ["shop.carts"] * 2, answer
            assert step_files.replay(answer["file"])[1] == answer["steps"]
            text = open(answer["file"], encoding="utf-8").read()
            assert "person" not in text, "the file has what a document has"
            told, steps = step_files.replay(answer["file"], "--machine", "index_build", "--verbose")
            assert told.count("\n    -> ") == steps > 4
            if index == primary:
                for word in ('[{"Commit":', '{"Failed":11000}', '[{"Abort":11000}]'):
                    assert word in told, told
                assert len({line for line in told.splitlines() if '{"Vote":' in line}) >= 2, told
                voted = text.splitlines()
            else:
                assert '-> ["Vote"]' in told and '{"Passed":"Follow"}' in told, told

        for name, changed in (("voteless", without_votes(voted)), ("another", with_another_task(voted))):
            path = members.members[primary].data / f"{name}.jsonl"
            path.write_text("\n".join(changed), encoding="utf-8")
            done = step_files.run(path)
            assert done.returncode == 1 and "index_build " in done.stderr and " shop.carts, step " in done.stderr, done


def without_votes(lines):
    """A file's lines without a vote in any build: who had waited for them could not have gone on."""
    return [line for line in lines if '"input":{"Vote":' not in line]


def with_another_task(lines):
    """The same with a wait for votes where an index was completed."""
    at = next(n for n, line in enumerate(lines) if '"effects":[{"Commit":' in line)
    return [*lines[:at], re.sub('"effects":.*', '"effects":["AwaitVotes"]}', lines[at]), *lines[at + 1:]]


def test_five_files_are_kept_and_the_header_says_whose_they_are():
    """Fails if files pile up, if a file is overwritten, or if a member without a set writes one."""
    with Member() as member, member.client() as client:
        written = [client.admin.command("replSetWriteSteps")["file"] for _ in range(7)]
        assert len(set(written)) == 7
        assert [str(path) for path in step_files.files_of(member)] == written[2:]
        header = json.loads(open(written[-1], encoding="utf-8").readline())
        assert header["member"].endswith(f":{member.port}") and header["format"] == 2
        with pytest.raises(pymongo.errors.OperationFailure) as refused:
            client.shop.command("replSetWriteSteps")
        assert refused.value.code == 13
        member.stop()
    with Member(replica_set=None) as alone, alone.client() as client:
        with pytest.raises(pymongo.errors.OperationFailure) as refused:
            client.admin.command("replSetWriteSteps")
        assert refused.value.code == 76
