"""Fault matrix 25 to 30: moves of leadership among members that lag, die, are silent or busy, or come back."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time

import pymongo
import pytest
from pymongo import WriteConcern

from replica_set import ReplicaSet
from test_leadership_moves import ELECTION_SECS, Writers, await_settled, backup_on, status, tasks_of
from test_leadership_moves import settings as that_move

# Writes wait this long at most for one attempt to hand over.
BLOCKED_SECS_MAX = 0.5


def settings(**leadership):
    """As for moves; and who is to lead is not refused because this machine happens to be busy or its caches are cold."""
    return that_move(refusalBound=1, **leadership)


@contextlib.contextmanager
def held(members, *indexes, behind=None):
    """Members that apply nothing of what is written, as long as this lasts; `behind` writes that they lack when it begins."""
    def hold(on):
        for index in indexes:
            with members.direct(index) as direct:
                direct.admin.command("configureFailPoint", "stopReplProducer", mode="alwaysOn" if on else "off")

    hold(True)
    try:
        if behind is not None:
            # One may have begun before; the next one did not.
            members.await_that(lambda count=behind.count: behind.count >= count + 2, "writes that they lack")
        yield
    finally:
        hold(False)


class Pauses:
    """A client that writes to one member all the time; `longest` is how long it waited for one write."""

    def __init__(self, members, index):
        self.client = members.direct(index, retryWrites=False)
        self.carts = self.client.get_database("shop", write_concern=WriteConcern(1)).pauses
        self.stop, self.longest, self.count, self.error = threading.Event(), 0, 0, None
        self.thread = threading.Thread(target=self._write)

    def _write(self):
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                self.carts.insert_one({})
            except pymongo.errors.PyMongoError as error:
                self.error = error
                return
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        self.client.close()


def complete_a_task(members, index, primary):
    """Makes a member the one that the ranking prefers."""
    with backup_on(members, index):
        pass
    members.await_that(lambda: not tasks_of(members, primary, of=index), "the end of its task")
    await_settled(members)


def test_25_a_candidate_that_does_not_keep_up_costs_one_bounded_pause_and_another_one_leads():
    """The member that the ranking prefers applies nothing from the moment of the handoff on: writes pause for no longer than an
    attempt may take, the handoff fails and is told so, and leadership goes to the other one."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        lagging, level = members.others(primary)
        complete_a_task(members, lagging, primary)
        with Pauses(members, primary) as writes:
            # Lag is told in the log's time: without writes before, it would be as long as nobody wrote.
            members.await_that(lambda: writes.count > 5, "writes")
            with held(members, lagging, behind=writes), backup_on(members, primary):
                assert members.primary() == level
        assert writes.longest < 2 * BLOCKED_SECS_MAX, f"writes waited {writes.longest:.3f} s"
        handoffs = status(members, primary)["handoffs"]
        assert handoffs[0].get("failedTo") == members.hosts[lagging], handoffs
        assert "caught up" in handoffs[0]["error"]
        assert handoffs[-1]["to"] == members.hosts[level]
        standing = {place["host"]: place for place in handoffs[-1]["ranking"]}
        assert not standing[members.hosts[lagging]]["eligible"]
        members.await_healthy()


def test_25_a_handoff_that_fails_refuses_no_write():
    """Writes wait for the end of each attempt and go on: no client, not even one that sends nothing again, is told of them."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        lagging, _ = members.others(primary)
        with Pauses(members, primary) as writes, members.direct(primary) as direct:
            members.await_that(lambda: writes.count > 5, "writes")
            with held(members, lagging, behind=writes), pytest.raises(pymongo.errors.OperationFailure) as failed:
                direct.admin.command("replSetHandoff", 1, to=members.hosts[lagging])
            assert failed.value.code == 262, failed.value
            members.await_that(lambda count=writes.count: writes.count > count + 5 or writes.error, "writes that go on")
            assert direct.admin.command("hello")["isWritablePrimary"]
        assert writes.error is None, writes.error
        assert BLOCKED_SECS_MAX / 2 < writes.longest < 2 * BLOCKED_SECS_MAX, f"a write waited {writes.longest:.3f} s"


def test_25_with_nobody_level_the_task_waits_and_writes_go_on():
    """Both secondaries lag: no attempt is made, so no write pauses; the task begins once one of them has caught up, elsewhere led."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        with Pauses(members, primary) as writes:
            with held(members, *members.others(primary), behind=writes):
                members.await_that(
                    lambda: all("obstacle" in place and "lags" in place["obstacle"] for place in ranking(members, primary)),
                    "secondaries that lag")
                begun = threading.Event()

                def back_up():
                    with backup_on(members, primary):
                        begun.set()
                        time.sleep(0.5)

                work = threading.Thread(target=back_up)
                work.start()
                assert not begun.wait(2), "it began beside clients"
                assert members.primary() == primary
                assert status(members, primary)["handoffs"] == []
                assert writes.longest < BLOCKED_SECS_MAX, f"writes waited {writes.longest:.3f} s"
                assert [stay["rule"] for stay in status(members, primary)["stays"]] == ["noCandidate"]
            assert begun.wait(30), members.logs()
            work.join()
        assert members.primary() != primary
        members.await_healthy()


def ranking(members, primary):
    """How the others stand, by a dry run."""
    with members.direct(primary) as direct:
        return direct.admin.command("replSetHandoff", 1, dryRun=True)["ranking"]


@pytest.mark.parametrize("ends", ["stands still", "dies"])
def test_26_the_target_ends_in_the_midst_of_a_handoff(ends):
    """Whoever was to lead is silent when leadership comes: another one is elected, or the old one goes on; what was acknowledged is
    there."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        target, other = members.others(primary)
        complete_a_task(members, target, primary)
        with Writers(members) as writers:
            members.await_that(lambda: len(writers.written) > 20, "writes")
            members.pause(target)
            if ends == "dies":
                threading.Timer(0.05, lambda: members.members[target].process.send_signal(signal.SIGKILL)).start()
            with backup_on(members, primary):
                leads = members.await_primary_among([primary, other], timeout_seconds=20)
                count = len(writers.written)
                members.await_that(lambda: len(writers.written) > count + 20, "writes that go on")
            assert leads in (primary, other)
        assert not writers.failures, writers.failures[:3]
        if ends == "dies":
            members.members[target].process.wait(20)
            members.spawn(target)
        else:
            members.resume(target)
        members.await_healthy()
        with members.client() as client:
            present = {document["_id"] for document in client.shop.carts.find()}
        assert present == set(writers.written)


def test_27_with_all_secondaries_busy_a_task_is_postponed_until_its_deadline_and_runs_where_it_is():
    """Writes go on meanwhile, leadership stays, and both decisions are told."""
    postponed_secs = 5
    with ReplicaSet(settings=settings(maxPostponeSecs=postponed_secs)) as members:
        primary = await_settled(members)
        one, other = members.others(primary)
        with contextlib.ExitStack() as busy:
            busy.enter_context(backup_on(members, one))
            # It waits for its turn until its own deadline; by then it is as little free as who runs one.
            busy.enter_context(backup_on(members, other))
            with Writers(members) as writers:
                members.await_that(lambda: tasks_of(members, primary, of=one) and tasks_of(members, primary, of=other), "news")
                began = time.monotonic()
                with backup_on(members, primary):
                    waited = time.monotonic() - began
                    assert members.primary() == primary
            assert not writers.failures
        assert postponed_secs - 0.5 < waited < postponed_secs + 3, f"it waited {waited:.1f} s"
        stays = [(stay["outcome"], stay["rule"]) for stay in status(members, primary)["stays"]]
        assert stays == [("postponed", "noCandidate"), ("begun", "deadline")], stays


def test_28_members_that_fall_silent_again_and_again_do_not_make_leadership_go_around():
    """Secondaries stand still for longer than gossip lasts and go on, while all want to be busy all the time: nobody is handed
    leadership by what was known of him before, and moves are no more than the cooldown allows."""
    cooldown_secs, lasts_secs = 3, 15
    luck = random.Random(int(os.environ.get("BATON_SEED", "28")))
    with ReplicaSet(settings=settings(cooldownSecs=cooldown_secs, maxPostponeSecs=30)) as members:
        await_settled(members)
        with members.client() as client:
            term = client.admin.command("replSetGetStatus")["term"]
        stop = threading.Event()

        def work(index):
            while not stop.is_set():
                with contextlib.suppress(pymongo.errors.PyMongoError), backup_on(members, index):
                    time.sleep(0.2)

        workers = [threading.Thread(target=work, args=(index,)) for index in range(3)]
        for worker in workers:
            worker.start()
        began = time.monotonic()
        while time.monotonic() - began < lasts_secs:
            silent = luck.choice(members.others(members.primary()))
            members.pause(silent)
            # Longer than two heartbeats, shorter than an election timeout.
            time.sleep(0.6)
            members.resume(silent)
            time.sleep(0.3)
        stop.set()
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive(), "a task neither began nor was given up"
        with members.client() as client:
            moves = client.admin.command("replSetGetStatus")["term"] - term
        # An election after a move that failed makes a term, too.
        assert moves <= 2 * (lasts_secs / cooldown_secs + 1), f"{moves} terms in {lasts_secs} s"
        members.await_healthy()


def test_28_nobody_is_chosen_by_old_gossip():
    """A secondary that the ranking prefers stands still: leadership goes to the other one, without an attempt at the first."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        silent, other = members.others(primary)
        complete_a_task(members, silent, primary)
        members.pause(silent)
        # Two heartbeats.
        time.sleep(0.6)
        with backup_on(members, primary):
            assert members.await_primary_among([primary, other]) == other
            handoffs = status(members, primary)["handoffs"]
        members.resume(silent)
        assert [handoff.get("to") for handoff in handoffs] == [members.hosts[other]], handoffs
        members.await_healthy()


def test_29_a_member_that_is_killed_in_the_midst_of_a_backup_leaves_no_backup_and_no_task(tmp_path):
    """The tool fails and says so, and what it leaves is no backup that could be restored; the others are free to be busy."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        with members.client() as client:
            carts = client.get_database("shop", write_concern=WriteConcern(3)).carts
            for start in range(0, 60_000, 2_000):
                carts.insert_many([{"_id": start + n, "text": "x" * 500} for n in range(2_000)])
        await_settled(members)
        saved, other = members.others(primary)
        out = tmp_path / "backup"
        uri = f"mongodb://{members.hosts[saved]}/?directConnection=true"
        tool = subprocess.Popen([os.environ["BATON"], "backup", uri, "--out", str(out)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        members.await_that(lambda: "backup" in tasks_of(members, primary, of=saved), "the backup")
        members.kill(saved)
        output, _ = tool.communicate(timeout=60)
        assert tool.returncode != 0, output
        restored = subprocess.run([os.environ["BATON"], "restore", members.uri, str(out)], capture_output=True, text=True, timeout=60)
        assert restored.returncode != 0, restored.stdout + restored.stderr
        began = time.monotonic()
        with backup_on(members, other):
            assert time.monotonic() - began < 2 * ELECTION_SECS + 2, "its claim is stolen once it is gone"
        members.spawn(saved)
        members.await_states()
        assert tasks_of(members, saved, of=saved) == []
        members.await_healthy()


def test_30_a_preferred_primary_that_lags_gets_leadership_back_only_once_it_has_caught_up():
    """With the ranking "preferred": its task is over, but it has applied nothing since it handed over."""
    with ReplicaSet(settings=settings(ranking="preferred")) as members:
        preferred = await_settled(members)
        with contextlib.ExitStack() as work:
            work.enter_context(backup_on(members, preferred))
            leads = members.primary()
            assert leads != preferred
            with Pauses(members, leads), held(members, preferred):
                members.await_that(lambda: lag_secs(members, leads, preferred) > 2, "the preferred primary behind")
                work.close()
                standing = members.await_that(
                    lambda: next((place for place in ranking(members, leads)
                                  if place["host"] == members.hosts[preferred] and "lags" in place.get("obstacle", "")), None),
                    "the end of its task")
                assert standing["preferred"]
                end = time.monotonic() + 2 * ELECTION_SECS
                while time.monotonic() < end:
                    assert not members.hello(preferred).get("isWritablePrimary"), "it leads and lags"
                    time.sleep(0.1)
        members.await_that(lambda: members.hello(preferred).get("isWritablePrimary"), "the preferred primary")
        members.await_healthy()


def test_30_a_member_of_the_highest_priority_that_returns_takes_over_once_it_has_caught_up():
    """It was away while others wrote, and its fetching is held: it takes over when that goes on, and has everything then."""
    with ReplicaSet(settings=settings(), members=[{"priority": 2}, {}, {}]) as members:
        members.await_that(lambda: members.hello(0).get("isWritablePrimary"), "the member of the highest priority")
        members.kill(0)
        leads = members.await_primary_among([1, 2])
        with Pauses(members, leads) as writes:
            members.spawn(0)
            members.await_that(lambda: members.hello(0), "an answer")
            with held(members, 0):
                end = time.monotonic() + 4 * ELECTION_SECS
                while time.monotonic() < end:
                    assert not members.hello(0).get("isWritablePrimary") or lag_secs(members, leads, 0) <= 2, "it leads and lags"
                    time.sleep(0.1)
            members.await_that(lambda: members.hello(0).get("isWritablePrimary"), "the member of the highest priority")
        assert writes.count > 0
        members.await_healthy()


def lag_secs(members, leads, index):
    """How far a member is behind the one that leads, in the log's time, as that one knows."""
    told = status(members, leads)["members"]
    return told[leads]["optime"]["ts"].time - told[index]["optime"]["ts"].time
