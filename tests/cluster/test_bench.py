"""`baton bench`: the experiments run from start to end and report what they promise. What the figures are is no test."""

import json
import os
import subprocess

import pytest


def bench(directory, *arguments):
    command = [os.environ["BATON"], "bench", *map(str, arguments), "--dir", str(directory), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert list(directory.iterdir()) == [], "an experiment leaves nothing behind"
    return json.loads(done.stdout)


def test_baton_is_compared_with_what_needs_no_installation(tmp_path):
    report = bench(
        tmp_path, "one", "--without", "java,redis", "--records", 300, "--durable-records", 300, "--workloads", "a,c,e",
        "--clients", 2, "--durable-clients", "1,2", "--seconds", 0.2, "--warmup", 0.05, "--first-warmup", 0.1,
        "--rest", 0.05, "--cache-gb", 0.25)
    cells = {(c["section"], c["workload"], c["clients"], c["peer"]): c for c in report["cells"]}
    for workload in "ace":
        for peer in ("Baton", "ping-pong", "RocksDB"):
            cell = cells["ycsb", workload, 2, peer]
            assert cell["operationsPerSecond"] > 0 and cell["p50Us"] <= cell["p99Us"] <= cell["maxUs"]
            assert 0 <= cell["during"]["others"] <= 1 and 0 <= cell["before"]["idle"] <= 1
    assert ("ycsb", "a", 2, "Baton, j:true") in cells and ("ycsb", "c", 2, "Baton, j:true") not in cells
    for clients in (1, 2):
        for peer in ("Baton $set, j:true", "RocksDB, synced", "append, fdatasync"):
            assert cells["durable", "replace", clients, peer]["operationsPerSecond"] > 0
    # Without its peer a target is left out, not met.
    demands = [target["demand"] for target in report["targets"]]
    assert "throughput, of the ping-pong's" in demands and not any("Redis" in demand for demand in demands)
    assert report["messageBytes"]["readReply"] > 1000


@pytest.mark.parametrize("arguments, demand", [
    (["scale", "--sizes", "200,400", "--hot", 200, "--seconds", 0.1, "--warmup", 0.1, "--rounds", 1, "--cache-gb", 0.25],
     "slowest table"),
    (["idle", "--seconds", 0.2, "--rest", 0.2, "--records", 100], "MB resident"),
    (["memory", "--records", 300, "--connections", 16, "--cursors", 2, "--at-once", 2, "--seconds", 0.2], "peak MB resident"),
    (["spill", "--records", 3000, "--sort-mb", 1, "--rounds", 1, "--cache-gb", 0.25], "sort that spills"),
    (["recovery", "--records", 300, "--kills", 2, "--seconds", 0.3, "--clients", 2, "--cache-gb", 0.25], "kill -9"),
    (["initial-sync", "--records", 300, "--seconds", 0.2, "--clients", 2, "--cache-gb", 0.25], "initial sync by file"),
    (["failover", "--times", 1, "--clients", 4, "--events", "kill,handoff"], "seconds without a majority write"),
])
def test_an_experiment_answers_its_demand(tmp_path, arguments, demand):
    report = bench(tmp_path, *arguments)
    assert any(demand in target["demand"] and target["figure"] is not None for target in report["targets"])


def test_a_set_is_measured_alone_where_etcd_is_not(tmp_path):
    report = bench(tmp_path, "set", "--records", 300, "--clients", "2", "--seconds", 1, "--cache-gb", 0.25)
    assert report["cells"][0]["baton"]["perSecond"] > 0
    # Without its peer a target is left out, not met.
    assert report["cells"][0]["etcd"] is None and report["targets"] == []


@pytest.mark.parametrize("arguments, events", [
    (["--events", "drop,flush", "--rounds", 2], ["drop", "flush"]),
    # In its own order, and with what is done by secondaries and by another member alone.
    (["--events", "sync-file,index-unique", "--busy", 2], ["index-unique", "sync-file"]),
])
def test_what_steady_clients_notice_of_events_is_measured(tmp_path, arguments, events):
    report = bench(tmp_path, "disturbance", "--records", 1500, "--quiet", 1, "--rest", 5, "--cache-gb", 0.25, *arguments)
    names = [run["name"] for run in report["runs"]]
    assert names == (["now", "now-2"] if "--rounds" in arguments else ["now"])
    run = report["runs"][-1]
    assert [row["event"] for row in run["report"]["events"]] == events
    for row in run["report"]["events"]:
        assert row["refused"] is None and 0 < row["answeredSecs"] <= row["endedSecs"]
        for role in ("writer", "reader"):
            for time in ("quiet", "meanwhile"):
                figures = row["clients"][role][time]
                assert figures["perSecond"] > 0 and figures["failures"] == 0
                assert 0 < figures["p50Ms"] <= figures["p99Ms"] <= figures["p999Ms"] <= figures["longestMs"]
            assert run["report"]["longestMs"][role]
        for time in ("quiet", "meanwhile"):
            assert any(used["ran"] > 0 for used in row["threads"][time].values())
    demands = [target["demand"] for target in report["targets"]]
    assert any("throughput" in demand for demand in demands) == ("--busy" in arguments)
    assert ("drop: answered after, s" in demands) == ("drop" in events)
