"""What operators type: connection strings of sets with dead members, the verdict of `baton status`, foreign options, `baton up`."""

import json
import os
import re
import shutil
import signal
import subprocess

import bson
import pymongo
import pytest

from member import Member, free_port
from replica_set import ReplicaSet


def baton(*arguments, code=0):
    done = subprocess.run([os.environ["BATON"], *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def members():
    """Three members with a collection; every test leaves them all running."""
    with ReplicaSet() as members:
        with members.client() as client:
            client.shop.carts.insert_many([{"_id": n} for n in range(100)])
        yield members


@pytest.fixture
def with_dead_first(members):
    """The set, with the member that its connection string names first killed, which may have been the primary."""
    members.stand(0)
    members.kill(0)
    members.await_primary_among([1, 2])
    yield members
    members.spawn(0)
    members.await_healthy()


def test_the_first_host_of_a_connection_string_may_be_a_secondary(members, tmp_path):
    """Fails if the host that is named first is the one that is read from and written to."""
    members.stand(1)
    uri = members.uri.replace(f"{members.hosts[1]},", "").replace("mongodb://", "mongodb://").split("?")[0]
    for given in (uri, f"mongodb://{members.hosts[0]}"):
        out = tmp_path / given[-5:].strip("/")
        assert f"from {members.hosts[1]}" in baton("backup", given, "--out", out)
        assert len(bson.decode_all((out / "shop/carts.bson").read_bytes())) == 100
        assert "100 documents were there already" in baton("restore", given, out)


def test_readme_s_order_kill_then_save_works_and_status_tells_who_is_missing(with_dead_first, tmp_path):
    """Fails if a dead first host ends `baton status`, `baton backup` or `baton restore`."""
    members = with_dead_first
    told = baton("status", members.uri)
    assert told.startswith("set rs0: DEGRADED: primary 127.0.0.1:"), told
    assert f"! cannot reach {members.hosts[0]}" in told
    # For a moment the new primary still holds it for what it was.
    assert re.search(rf"{members.hosts[0]} +(?:DOWN|[A-Z]+\?) +- +- ", told), told
    assert members.hosts[0] not in told.partition("fetching")[2].partition("committed")[0]
    baton("backup", members.uri, "--out", tmp_path / "dump")
    with members.direct(members.primary()) as client:
        stays = client.admin.command("replSetGetStatus")["stays"]
    assert not any(stay["trigger"] == "backup" for stay in stays), "so small a backup waits for nothing, however lately there was an election"
    assert "100 documents were there already" in baton("restore", members.uri, tmp_path / "dump", "--oplogReplay")


def test_status_says_no_primary_first_and_in_its_exit_code(members):
    """Two of three are dead. Fails if the verdict has to be guessed from the members' lines."""
    alive = members.primary()
    dead = members.others(alive)
    members.kill(*dead)
    try:
        members.await_that(lambda: not members.hello(alive).get("isWritablePrimary"), "a primary without a majority resigns")
        told = baton("status", members.uri, code=1)
        assert told.startswith("set rs0: NO PRIMARY: 1 of 3 voting members answer, 2 are needed"), told
        report = json.loads(baton("status", members.uri, "--json", code=1))
        assert report["verdict"] == "noPrimary" and report["primary"] is None
        assert sorted(member["role"] for member in report["members"]) == ["DOWN", "DOWN", "SECONDARY"]
    finally:
        for index in dead:
            members.spawn(index)
        members.await_healthy()


def test_leadership_that_moves_is_no_alarm(members):
    """Asked when the primary was just killed, and when it just stepped down. Fails if that moment is told as a set without a primary."""
    def step_down(index):
        with members.direct(index) as client:
            client.admin.command({"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 1})

    for cease in (members.kill, step_down):
        members.await_healthy()
        former = members.primary()
        cease(former)
        told = baton("status", members.uri)
        assert re.match(r"set rs0: (?:OK|DEGRADED): primary 127", told) and f"primary {members.hosts[former]}" not in told, told
        if cease == members.kill:
            members.spawn(former)
    members.await_healthy()


def test_an_idle_set_is_ok_and_nobody_is_behind(members):
    """Each uptime is the member's own. Fails if the primary is behind, or a member as old as who was asked."""
    members.await_healthy()
    young = members.others(members.primary())[0]
    members.kill(young)
    members.spawn(young)
    members.await_healthy()
    report = json.loads(baton("status", members.uri, "--json"))
    assert report["verdict"] == "ok" and report["problems"] == [], report
    assert [member["lagSecs"] for member in report["members"]] == [0, 0, 0]
    ages = [member["uptimeSecs"] for member in report["members"]]
    assert ages[young] < min(age for index, age in enumerate(ages) if index != young) or max(ages) < 2, ages
    text = baton("status", f"mongodb://{members.hosts[young]}")
    assert text.startswith(f"set rs0: OK: primary {report['primary']}"), text


@pytest.mark.parametrize("options, told", [
    ("replicaSet=other", "belongs to the replica set 'rs0', not to 'other'|members of the replica set rs0, not of 'other'"),
    ("tls=true", "tls=true: TLS is not implemented yet"),
    ("authMechanism=SCRAM-SHA-256", "authMechanism.*users are not implemented yet"),
    ("readPreferenceTags=dc:ny", "readPreferenceTags.*leave it out"),
    ("retryWrites=perhaps", "retryWrites=perhaps: must be true or false"),
    ("frobnicate=1", "'frobnicate' is no option"),
])
def test_what_a_connection_string_asks_for_is_honoured_or_refused_by_name(members, tmp_path, options, told):
    uri = f"mongodb://{members.hosts[0]}/?{options}"
    for command in (["status", uri], ["backup", uri, "--out", tmp_path / "x"]):
        assert re.search(told, baton(*command, code=1)), command


def test_a_connection_string_copied_from_an_application_is_taken(members, tmp_path):
    copied = (f"mongodb://{','.join(members.hosts)}/?replicaSet=rs0&retryWrites=true&retryReads=true&w=majority&appName=shop"
              "&tls=false&readPreference=primaryPreferred&maxPoolSize=50&maxIdleTimeMS=60000&compressors=zstd,snappy&authSource=admin")
    assert baton("status", copied).startswith("set rs0: OK")
    baton("backup", copied, "--out", tmp_path / "x")
    baton("restore", copied, tmp_path / "x", "--drop")


def test_the_timeouts_of_a_connection_string_are_kept(members, tmp_path):
    """A paused member answers nothing. Fails if it is waited for longer than the string says."""
    paused = members.others(members.primary())[0]
    members.pause(paused)
    try:
        told = baton("backup", f"mongodb://{members.hosts[paused]}/?directConnection=true&socketTimeoutMS=300", "--out",
                     tmp_path / "x", code=1)
        assert "no answer" in told
        # And it keeps nobody from the others.
        baton("backup", members.uri + "&socketTimeoutMS=3000", "--out", tmp_path / "y")
    finally:
        members.resume(paused)
        members.await_healthy()


def test_other_schemes_and_mongodump_s_flags_get_a_hint(members, tmp_path):
    assert "mongodb://HOST:PORT" in baton("status", "mongodb+srv://cluster.example.com/", code=1)
    assert "users are not implemented yet" in baton("backup", f"mongodb://ada:x@{members.hosts[0]}", code=1)
    for flags, told in ((["--archive=x"], "--out DIR"), (["--host", "a"], "connection string"), (["-u", "ada"], "users")):
        assert told in baton("backup", f"mongodb://{members.hosts[0]}", *flags, code=2)
    # Those that work: --uri, and the database in the connection string.
    out = tmp_path / "dump"
    baton("backup", "--uri", f"mongodb://{','.join(members.hosts)}/shop", "--gzip", "--out", out)
    assert sorted(path.name for path in out.iterdir()) == ["prelude.json.gz", "shop"]
    assert "100 documents were there already" in baton("restore", "--uri", members.uri, "--dir", out)


def test_a_backup_that_fails_leaves_nothing_in_the_way_of_the_next(members, tmp_path):
    """Nor does one that was killed. Fails if `dump.incomplete` stays, or blocks."""
    out = tmp_path / "dump"
    assert "nothing in nowhere" in baton("backup", members.uri, "--db", "nowhere", "--out", out, code=1)
    assert list(tmp_path.iterdir()) == []
    left = tmp_path / "dump.incomplete"
    left.mkdir()
    (left / "prelude.json").write_text("{}")
    (left / "half").mkdir()
    baton("backup", members.uri, "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == ["dump"] and not (out / "half").exists()


def test_who_brings_a_user_is_told_that_there_are_none_yet(members):
    """334, and not 18, which means that another password would do."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-1", "DEFAULT"):
        with pymongo.MongoClient(members.uri, username="ada", password="x", authMechanism=mechanism) as client:
            with pytest.raises(pymongo.errors.OperationFailure, match="users are not implemented yet") as refused:
                client.shop.carts.find_one()
            assert refused.value.code == 334


# What MongoDB's package for Debian installs as /etc/mongod.conf, with what older ones and guides add.
MONGOD_CONF = """\
# mongod.conf
storage:
  dbPath: {data}
#  engine:
#  wiredTiger:
  journal:
    enabled: true
  wiredTiger:
    collectionConfig:
      blockCompressor: snappy
systemLog:
  destination: file
  logAppend: true
  path: {log}
  quiet: true
net:
  port: {port}
  bindIp: 127.0.0.1
  ipv6: false
processManagement:
  timeZoneInfo: /usr/share/zoneinfo
#security:
#operationProfiling:
#replication:
#sharding:
setParameter:
  enableLocalhostAuthBypass: false
"""


def test_the_configuration_of_mongodbs_package_starts_and_what_is_inert_is_a_warning(tmp_path):
    member = Member(data=tmp_path / "data", replica_set=None, parameters={})
    config = tmp_path / "mongod.conf"
    config.write_text(MONGOD_CONF.format(data=member.data, log=tmp_path / "mongod.log", port=member.port))
    process = subprocess.Popen([member.binary, "serve", "--config", config])
    try:
        with pymongo.MongoClient("127.0.0.1", member.port, directConnection=True, serverSelectionTimeoutMS=20_000) as client:
            warnings = [json.loads(line)["msg"] for line in client.admin.command("getLog", "startupWarnings")["log"]]
        for key in ("processManagement.timeZoneInfo", "storage.journal.enabled", "storage.wiredTiger.collectionConfig",
                    "systemLog.quiet", "net.ipv6", "setParameter.enableLocalhostAuthBypass"):
            assert sum(f"{key} has no effect" in warning for warning in warnings) == 1, (key, warnings)
        assert "timeZoneInfo has no effect" in (tmp_path / "mongod.log").read_text()
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_what_a_configuration_promises_and_baton_does_not_keep_is_refused_all_at_once(tmp_path):
    config = tmp_path / "mongod.conf"
    config.write_text("storage:\n  dbPaht: /x\nnet:\n  prot: 1\n")
    told = baton("serve", "--config", config, code=2)
    assert "line 2: Unrecognized option: storage.dbPaht" in told and "line 4: Unrecognized option: net.prot" in told
    config.write_text("security:\n  authorization: enabled\n  keyFile: /k\nnet:\n  tls:\n    mode: requireTLS\n    CAFile: /c\n"
                      f"storage:\n  dbPath: {tmp_path / 'data'}\n")
    told = baton("serve", "--config", config, code=2)
    for key in ("security.authorization", "security.keyFile", "net.tls.mode", "net.tls.CAFile"):
        assert key in told, told
    assert not (tmp_path / "data").exists()


def test_the_members_of_baton_up_share_the_machine_and_say_what_each_takes(tmp_path):
    """Fails if three members take more together than one alone would."""
    port = free_port()
    free = shutil.disk_usage(tmp_path).free >> 20
    process = subprocess.Popen(
        [os.environ["BATON"], "up", "--members", "3", "--port", str(port), "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE, text=True)
    try:
        printed = ""
        while "sizes" not in printed or "stop" not in printed:
            line = process.stdout.readline()
            assert line, f"it ended: {printed}"
            printed += line
        # One for all, or each member's where the disk has filled between their starts; the first member's stands first.
        told = re.findall(r"cache (\d+) MB, oplog (\d+) MB", printed)
        assert 1 <= len(told) <= 3, printed
        cache, oplog = map(int, told[0])
        with pymongo.MongoClient("127.0.0.1", port, directConnection=True) as client:
            status = client.admin.command("serverStatus")["rocksdb"]
        assert status["cache"]["maxBytes"] >> 20 == cache and status["oplog"]["maxBytes"] >> 20 == oplog
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        assert 3 * cache <= max((memory - 1024) // 2, 256) + 3
        # Others may have made room meanwhile.
        assert 3 * oplog <= max(free // 20, 990) * 1.1
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
