"""The lab's pure parts: what needs neither root nor a member. `python -m pytest lab`."""

import collections
import json
import random
import select
import socket
import subprocess
import sys
import time

import bson
import pytest

from lab import leadership
from lab.deadlines import Deadlines
from lab.failover import mean
from lab.load import SO_TIMESTAMPNS, STAMP, is_done, message, quantile, received_at
from lab.members import ROOT
from lab.oracle import in_time_at_most, in_time_in_turn
from lab.priority import summary, while_all_ran
from lab.proxy import Delayed
from lab.report import Target
from lab.zipf import Zipfian


def test_quantiles_are_values_that_occurred():
    values = list(range(1, 101))
    assert [quantile(values, share) for share in (0.5, 0.9, 0.99, 1)] == [50, 90, 99, 100]
    assert quantile([7], 0.5) == 7


def test_a_target_is_met_by_what_is_shown_of_it():
    assert Target("", 0.5, 0.504).is_met and not Target("", 0.5, 0.506).is_met
    assert Target("", 1.8, 1.8, at_least=True).is_met and not Target("", 1.8, 1.79, at_least=True).is_met
    assert str(Target("ratio", 0.5, 0.61)) == "ratio: 0.61 (≤ 0.5) NOT MET"


def test_a_message_is_an_op_msg():
    sent = message(7, {"ping": 1})
    assert int.from_bytes(sent[:4], "little") == len(sent)
    assert bson.decode(sent[21:]) == {"ping": 1}


def test_a_latency_ends_when_the_kernel_has_the_reply():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        member, _ = server.accept()
        # The kernel begins to stamp a moment after the first socket has asked for it.
        time.sleep(0.5)
        before = time.monotonic()
        with member:
            member.sendall(b"reply")
        select.select([client], [], [])
        came = time.monotonic()
        time.sleep(0.5)
        data, control, _, _ = client.recvmsg(1 << 16, socket.CMSG_SPACE(STAMP.size))
    assert data == b"reply" and before - 0.1 < received_at(control) < came + 0.1, "not when it is read"


def test_who_begins_late_shortens_what_is_measured():
    results = {"high": {"begun": 10.0, "each": [(11.2, 1.0), (11.8, 2.0), (13.0, 3.0)]}, "normal": {"begun": 10.5, "each": [(13.9, 4.0)]}}
    seconds, run = while_all_ran(results, 3)
    assert seconds == 2.5 and [ms for _, ms in run["high"]] == [2.0, 3.0] and [ms for _, ms in run["normal"]] == [4.0]
    assert summary(run["high"], seconds)["perSecond"] == 2 / 2.5
    with pytest.raises(RuntimeError, match="no time"):
        while_all_ran({**results, "low": {"begun": 13.0, "each": []}}, 3)


def test_a_load_that_is_held_begins_when_it_is_told():
    command = [sys.executable, "-m", "lab.load", "--hosts", "127.0.0.1:1", "--warmup", "0", "--seconds", "0.1", "--held"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as load:
        assert load.stdout.readline() == "ready\n"
        told = time.monotonic()
        output, _ = load.communicate("\n")
    assert json.loads(output)["begun"] >= told


def test_bytes_wait_their_time_and_keep_their_order():
    delayed = Delayed(0.02)
    delayed.put(1.0, b"ab")
    delayed.put(1.01, b"cd")
    taken = []

    def send(data):
        taken.append(bytes(data[:1]))
        return 1

    assert not delayed.deliver(1.019, send) and not taken
    assert delayed.due_at() == 1.02
    # A socket that takes one byte at a time.
    for _ in range(4):
        assert not delayed.deliver(1.04, send)
    assert b"".join(taken) == b"abcd" and delayed.size == 0 and delayed.due_at() is None
    delayed.put(2.0, b"")
    assert delayed.deliver(2.02, send), "the end arrives, too"


def test_a_mean_is_of_the_times_between():
    assert mean([(0.0, 10), (1.0, 20), (2.0, 30)], 1, 3) == 25
    assert mean([], 0, 1) == 0


def test_few_documents_are_most_of_what_is_asked_for():
    zipfian = Zipfian(10_000, random.Random(1))
    drawn = collections.Counter(zipfian.next() for _ in range(50_000))
    assert all(0 <= number < 10_000 for number in drawn)
    popular = [count for _, count in drawn.most_common(100)]
    assert 0.4 < sum(popular) / 50_000 < 0.7, "a hundredth of the documents"
    assert 0.07 < popular[0] / 50_000 < 0.13, "1 / zeta(10,000)"


def test_a_request_counts_when_its_document_was_there():
    assert is_done({"ok": 1, "n": 1}) and is_done({"ok": 1, "cursor": {"firstBatch": [{}]}})
    assert not is_done({"ok": 1, "n": 0}) and not is_done({"ok": 1, "cursor": {"firstBatch": []}})
    assert not is_done({"ok": 1, "n": 1, "writeConcernError": {}}) and not is_done({"ok": 0})


def test_time_is_quiet_where_no_chore_is_and_disturbed_where_one_was_asked_of_the_primary():
    chores = [{"asked": 12, "ended": 14, "ofPrimary": True}, {"asked": 13, "ended": 16, "ofPrimary": False},
              {"asked": 18, "ended": 30, "ofPrimary": True}]
    quiet, disturbed = leadership.stretches(chores, 10, 20)
    assert (quiet, disturbed) == ([(10, 12), (16, 18)], [(12, 14), (18, 20)])
    each = [(11, 1.0), (13, 4.0), (13.5, 8.0), (15, 99.0), (17, 3.0)]
    found = leadership.figures(each, disturbed)
    assert (found["seconds"], found["perSecond"], found["longest"]) == (4, 0.5, 8.0)
    assert leadership.figures(each, [(10, 10.5)]) is None, "too short to say anything"


def test_a_mode_is_compared_with_off_in_the_same_round():
    def row(per_second, backup):
        return {"all": {"perSecond": per_second}, "chores": [{"kind": "backup", "asked": 1, "ended": 1 + backup, "failed": None}]}

    # The machine is half as fast in the second round.
    found = leadership.beside([row(110, 6), row(60, 16), row(99, 9)], [row(100, 10), row(50, 20), row(100, 10)])
    assert found["ofOff"]["median"] == 1.1 and found["ofOff"]["min"] == 0.99
    assert found["backupOfOff"]["median"] == 0.8
    assert leadership.beside([row(1, 1)], []) == {"ofOff": None, "backupOfOff": None}


def test_moves_are_counted_over_times_without_a_primary():
    assert leadership.moves([(0, 0, []), (1, None, []), (2, 0, []), (3, 1, []), (4, None, []), (5, 2, [])]) == 2


def test_an_oracle_has_all_in_time_that_can_be_and_no_more():
    # Each takes 2 ms, as deadlines are stated: of four that come together and have 5 ms, two can be over.
    crowd = [(0.0, 0.005)] * 4
    assert (in_time_at_most(crowd, 0.002), in_time_in_turn(crowd, 0.002)) == (2, 2)
    # One that comes later and has less time goes before who can wait.
    assert in_time_at_most([(0.0, 0.010), (0.001, 0.0035)], 0.002) == 2
    assert in_time_at_most([(0.0, 0.0019), (5.0, 5.0021)], 0.002) == 1, "who cannot be in time is in nobody's way"
    # The first three come with too little left once they are served in turn; an oracle leaves the hopeless out.
    late = [(0.0, 0.001), (0.0, 0.001), (0.0, 0.001), (0.0, 0.003), (0.0, 0.005)]
    assert (in_time_at_most(late, 0.002), in_time_in_turn(late, 0.002)) == (2, 0)


def test_a_request_counts_as_in_time_if_it_was_answered_within_what_it_was_given():
    came = [(0.0, 10, 9.9), (0.1, 10, 10.1), (0.2, 10, None), (0.3, 10, 10.0)]
    row = Deadlines._row(came, 0.002)
    assert (row["asked"], row["share"], row["ofOracle"], row["inTurn"]) == (4, 0.5, 0.5, 1)


def test_every_picture_is_drawn_from_its_report(tmp_path):
    from lab import pictures
    point = {"clients": 1, "perSecond": 10, "latencyMs": {"p50": 1, "p90": 2}, "crossedMbytePerSecond": 3}
    curves = {"on": [point], "off": [point]}
    reports = {
        "chaining": {"curves": curves},
        "uplink": {"curves": curves, "mbit": 200},
        "failover": {"series": [(0, 1), (1, 2)], "events": {"killed": 0.2, "returned": 0.5}},
        "disturbance": {"records": 9, "runs": [{"name": "now", "report": {
            "events": [{"event": "drop", "startSecs": 1, "waitedSecs": 0, "endedSecs": 0.1, "refused": None}],
            "longestMs": {"reader": [(0, 1), (1, 2)], "writer": [(0, 1)]}}}]},
        "leadership-backup": {"part": "backup", "members": 3, "rows": {mode: [{
            "perSecond": [5, 6, 7], "all": {"perSecond": 6}, "moves": 1, "seen": [(0.2, 0, []), (0.4, None, [0]), (0.6, 1, [0])]}]
            for mode in ("off", "always")}},
        "priority-deadlines": {"part": "deadlines", "kind": "deadlines", "load": 1.5, "rows": {
            mode: [{"share": 0.6, "ofOracle": 0.9, "inTurn": 0.1}] for mode in ("off", "full")}},
        "priority-hour": {"part": "hour", "kind": "hour", "seconds": 60, "members": 3, "worstWaitMs": 1000, "classes": {"low": {}},
                          "samples": [(1.0, 1, 200.0, {"low": 3.0}), (2.0, 1, 300.0, {"low": 4.0})]},
        "priority-figure": {"part": "figure", "clients": {"high": 1}, "w": 1, "members": 1, "cores": 1, "line": {"high": [(0.1, 2.0)]},
                            "summary": {variant: {"high": {"p5": 1, "p25": 2, "p50": 3, "p75": 4, "p95": 5}} for variant in ("alone", "none", "full")}},
        "lag": {"samples": [(0, 1), (1, 2)], "lagMs": {"p99": 2}},
    }
    for name, report in reports.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
        pictures.draw(name, tmp_path, tmp_path)
    assert len(list(tmp_path.glob("*.svg"))) == 12
