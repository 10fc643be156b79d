"""Leadership moves before heavy work begins, on real processes: who hands over to whom, what waits, and how it is explained."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import threading
import time
import urllib.request

import pymongo
import pytest
from pymongo import WriteConcern

from replica_set import ReplicaSet

# A tenure is never shorter than the election timeout.
ELECTION_SECS = 1.5
# No two tasks have one name.
numbers = itertools.count()


def settings(mode="always", **leadership):
    """A set's settings under which leadership may move soon and often, unless said otherwise."""
    policy = {"mode": mode, "cooldownSecs": 0, "minTenureSecs": 0, "maxPostponeSecs": 60, "maxMovesPerHour": 1000, **leadership}
    return {"electionTimeoutMillis": int(ELECTION_SECS * 1000), "heartbeatIntervalMillis": 200, "leadership": policy}


@contextlib.contextmanager
def backup_on(members, index, **more):
    """A backup of a member as long as this lasts; it begins when the member lets it. `more` is what else is said of it."""
    with members.direct(index, maxPoolSize=1, socketTimeoutMS=90_000) as client:
        task = client.admin.command("replSetBeginTask", 1, kind="backup", name=f"backup {next(numbers)}", **more)
        yield task
        with contextlib.suppress(pymongo.errors.AutoReconnect):
            client.admin.command("replSetEndTask", 1, taskId=task["taskId"])


def status(members, index):
    """What a member tells of the set."""
    with members.direct(index) as client:
        return client.admin.command("replSetGetStatus")


def told_by(members, index, of):
    """What a member tells of one member."""
    return status(members, index)["members"][of]


def tasks_of(members, index, of, state="running"):
    """The kinds of heavy tasks that one member tells of another."""
    return [task["kind"] for task in told_by(members, index, of).get("tasks", []) if task["state"] == state]


def await_settled(members):
    """Waits until the primary may hand over again, and has heard of everybody; returns it."""
    time.sleep(ELECTION_SECS + 0.3)
    primary = members.primary()

    def everybody_is_free():
        with members.direct(primary) as client:
            ranking = client.admin.command("replSetHandoff", 1, dryRun=True)["ranking"]
        return all(place["eligible"] for place in ranking)

    members.await_that(everybody_is_free, "every secondary as a candidate")
    return primary


class Writers:
    """Clients that write with a majority all the time; `failures` has what they were told otherwise."""

    def __init__(self, members, count=4):
        self.client = members.client()
        self.carts = self.client.get_database("shop", write_concern=WriteConcern("majority")).carts
        self.stop, self.failures, self.written = threading.Event(), [], []
        self.threads = [threading.Thread(target=self._write, args=(worker,)) for worker in range(count)]

    def _write(self, worker):
        number = 0
        while not self.stop.is_set():
            try:
                self._insert({"_id": f"{worker}-{number}"})
                self.written.append(f"{worker}-{number}")
            except pymongo.errors.PyMongoError as error:
                self.failures.append(error)
            number += 1

    def _insert(self, document):
        try:
            self.carts.insert_one(document)
        except pymongo.errors.NotPrimaryError as error:
            # The driver asks twice what it knows of a member that it has chosen: who has ceased to be primary in between is asked without a
            # number to retry by, and what that refuses comes to its caller, without this label.
            if error.has_error_label("RetryableWriteError"):
                raise
            self.carts.insert_one(document)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        self.client.close()


def test_a_primary_hands_over_before_a_backup_and_the_backup_runs_on_what_was_primary():
    """No write fails; the members know of each other's task; the move is told with its trigger, rule, ranking and gaps."""
    with ReplicaSet(settings=settings()) as members:
        before = await_settled(members)
        with Writers(members) as writers:
            with backup_on(members, before):
                after = members.primary()
                assert after != before
                assert tasks_of(members, before, of=before) == ["backup"]
                members.await_that(lambda: tasks_of(members, after, of=before) == ["backup"], "news of the task")
            members.await_that(lambda: not tasks_of(members, after, of=before), "news of the task's end")
            assert told_by(members, after, of=before)["lastTaskEnd"]
        assert not writers.failures, writers.failures[:3]
        move = status(members, before)["handoffs"][-1]
        assert (move["trigger"], move["rule"], move["mode"], move["rankedBy"]) == ("backup", "alwaysMoves", "always", "mrc")
        assert move["to"] == members.hosts[after]
        assert move["writeGapMs"] > 0 and move["predictedGapMs"] > 0
        assert [place["chosen"] for place in move["ranking"]] == [True, False]
        assert members.primary() == after, "with this ranking nobody gets it back"
        with writers.client as _, members.client() as client:
            assert client.shop.carts.count_documents({}) == len(writers.written)


def test_a_primary_that_is_asked_to_compact_hands_over_first_and_a_small_collection_is_compacted_where_it_is():
    """What is too small to be felt moves nothing. RocksDB's own compactions of what was inserted go the same way."""
    with ReplicaSet(settings=settings()) as members:
        before = await_settled(members)
        with members.client() as client:
            client.shop.small.insert_one({"_id": 1})
        with members.direct(before) as direct:
            direct.shop.command("compact", "small")
        assert members.primary() == before
        with members.client() as client:
            for number in range(40):
                client.shop.large.insert_one({"_id": number, "noise": os.urandom(1 << 20)})
        before = await_settled(members)
        told = len(status(members, before)["handoffs"])
        with members.direct(before) as direct:
            direct.shop.command("compact", "large")
        after = members.primary()
        assert after != before
        handoffs = status(members, before)["handoffs"][told:]
        assert [handoff["trigger"] for handoff in handoffs] == ["compaction"]


def test_with_the_mode_off_nothing_moves_and_nothing_waits():
    """Three backups at once, one on each member."""
    with ReplicaSet(settings=settings("off")) as members:
        before = await_settled(members)
        with contextlib.ExitStack() as all_at_once:
            for index in range(3):
                all_at_once.enter_context(backup_on(members, index))
            assert members.primary() == before
        assert status(members, before)["handoffs"] == []


def test_all_members_that_want_to_be_busy_at_once_move_leadership_once_and_take_turns():
    """The next primary wants to be busy, too: tenure, cooldown and claims keep leadership from going around."""
    policy = settings(cooldownSecs=3600, maxPostponeSecs=8)
    with ReplicaSet(settings=policy) as members:
        before = await_settled(members)
        with members.client() as client:
            term = client.admin.command("replSetGetStatus")["term"]
        busy, most, lock = set(), [0], threading.Lock()

        def work(index):
            with backup_on(members, index):
                with lock:
                    busy.add(index)
                    most[0] = max(most[0], len(busy))
                time.sleep(1.5)
                with lock:
                    busy.discard(index)

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            # The primary's first, so that the others are free.
            first = pool.submit(work, before)
            members.await_that(lambda: members.primary() != before, "another primary")
            others = [pool.submit(work, index) for index in members.others(before)]
            for done in [first, *others]:
                done.result(timeout=60)
        assert most[0] == 1, "a majority was busy"
        with members.client() as client:
            assert client.admin.command("replSetGetStatus")["term"] == term + 1, "leadership moved more than once"
        stays = status(members, members.primary())["stays"]
        assert {stay["trigger"] for stay in stays} == {"backup"}
        assert stays[-1]["outcome"] == "begun" and stays[-1]["count"] == 1


def test_members_that_are_due_at_the_same_moment_do_not_pass_leadership_around():
    """All three ask in the same instant: whatever comes of it, leadership moves at most once a tenure and cooldown."""
    policy = settings(cooldownSecs=3600, maxPostponeSecs=5)
    with ReplicaSet(settings=policy) as members:
        await_settled(members)
        with members.client() as client:
            term = client.admin.command("replSetGetStatus")["term"]

        def work(index):
            with backup_on(members, index):
                time.sleep(0.5)

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(work, range(3), timeout=60))
        with members.client() as client:
            assert client.admin.command("replSetGetStatus")["term"] <= term + 1


def test_automatic_compactions_of_all_members_move_leadership_once_at_most():
    """All three have the same to merge at the same time, heavy work for each. Fails if leadership goes from one to the next, if a
    compaction waits beyond its deadline, or if none asked the gate."""
    policy = settings(cooldownSecs=3600, maxPostponeSecs=4)
    with ReplicaSet(settings=policy, arguments=["--cacheSizeGB", "0.0625"]) as members:
        await_settled(members)
        with members.client() as client:
            term = client.admin.command("replSetGetStatus")["term"]
            carts = client.get_database("shop", write_concern=WriteConcern("majority")).carts
            for number in range(160):
                # In an order of their own, so that every file overlaps the others.
                carts.insert_one({"_id": number * 7919 % 160, "noise": os.urandom(1 << 20)})
        waiting = [tasks_of(members, index, of=index, state="waiting") for index in range(3)]
        members.await_that(lambda: not any(tasks_of(members, index, of=index, state="waiting") for index in range(3)),
                           f"the beginning of what waits, {waiting}", timeout_seconds=30)
        asked = sum(value for index in range(3) for name, value in scrape(members, index).items()
                    if name.startswith("baton_leadership_admitted_total"))
        assert asked > 0, "no compaction asked"
        with members.client() as client:
            assert client.admin.command("replSetGetStatus")["term"] <= term + 1
        members.await_healthy()


def test_the_ranking_mrc_chooses_who_has_completed_a_task_last_and_a_dry_run_says_so():
    """A dry run moves nothing, and names every member's standing."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        first, last = members.others(primary)
        for index in (last, first, last):
            with backup_on(members, index):
                pass
        members.await_that(lambda: not tasks_of(members, primary, of=last), "the end of the tasks")
        with members.direct(primary) as direct:
            def dry():
                return direct.admin.command("replSetHandoff", 1, dryRun=True)

            members.await_that(lambda: all(place["eligible"] for place in dry()["ranking"]), "free members")
            told = dry()
            assert told["to"] == members.hosts[last] and told["rankedBy"] == "mrc"
            assert [place["host"] for place in told["ranking"]] == [members.hosts[last], members.hosts[first]]
            assert told["ranking"][0]["lastTaskEnd"] >= told["ranking"][1]["lastTaskEnd"]
            with backup_on(members, last):
                busy = members.await_that(
                    lambda: next((place for place in dry()["ranking"] if not place["eligible"]), None), "a busy member")
                assert busy["host"] == members.hosts[last]
                assert "backup" in busy["obstacle"] or "task" in busy["obstacle"], busy
                assert dry()["to"] == members.hosts[first]
            assert members.primary() == primary


def test_the_ranking_preferred_gives_leadership_back_when_the_work_is_done():
    """Who handed over before its task leads again after it."""
    with ReplicaSet(settings=settings(ranking="preferred")) as members:
        before = await_settled(members)
        with backup_on(members, before):
            between = members.primary()
            assert between != before
        members.await_that(lambda: members.hello(before).get("isWritablePrimary"), "the preferred primary")
        returned = status(members, between)["handoffs"][-1]
        assert (returned["trigger"], returned["to"]) == ("preferredFree", members.hosts[before])


def test_a_busy_member_leaves_standing_to_the_others():
    """The primary dies while one of two secondaries is in a backup: the other one leads."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        busy, free = members.others(primary)
        for _ in range(2):
            with backup_on(members, busy):
                members.kill(primary)
                assert members.primary() == free
            members.spawn(primary)
            members.await_states()
            primary, free = free, primary


def test_a_busy_member_leads_if_nobody_else_can():
    """Of two secondaries one is gone and the other is busy: the set gets its primary."""
    with ReplicaSet(settings=settings(), members=[{}, {}, {"priority": 0}]) as members:
        primary = await_primary_with_priority(members)
        busy = next(index for index in members.others(primary) if index != 2)
        with backup_on(members, busy):
            members.kill(primary)
            assert members.primary() == busy


def await_primary_with_priority(members):
    """The primary, once it may hand over."""
    time.sleep(ELECTION_SECS + 0.3)
    return members.primary()


def test_a_step_down_passes_over_who_is_busy():
    """An operator's step-down and a member that stops hand over to the one that is free, though the other comes first otherwise."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        busy, free = members.others(primary)
        with backup_on(members, busy):
            members.await_that(lambda: tasks_of(members, primary, of=busy), "news of the task")
            with members.direct(primary) as direct:
                direct.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=2)
            assert members.primary() == free
            assert status(members, primary)["handoffs"][-1]["to"] == members.hosts[free]
            members.await_that(lambda: tasks_of(members, free, of=busy), "news of the task")
            time.sleep(5.5)
            members.members[free].stop()
            assert members.primary() == primary


def scrape(members, index):
    """The figures of a member that Prometheus reads."""
    url = f"http://127.0.0.1:{members.members[index].port + 1000}/metrics"
    with urllib.request.urlopen(url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def log_ids(members, index):
    """The numbers of a member's log lines, in order."""
    return [json.loads(line).get("id") for line in members.members[index].log_path.read_text().splitlines() if line.startswith("{")]


def test_a_move_is_in_the_log_and_among_the_figures():
    """The lines have numbers, in the order of what happened; the counters have the trigger, the rules and the gap."""
    waits, begins, is_to_move, has_moved = 9100002, 9100001, 9100006, 9100008
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        with backup_on(members, primary):
            members.await_that(lambda: has_moved in log_ids(members, primary), "the end of the move in the log")
        ids = [number for number in log_ids(members, primary) if number in (waits, is_to_move, has_moved, begins)]
        # After the move the task asks for its turn, which may come before this member knows who leads.
        assert ids[:2] == [waits, is_to_move] and sorted(ids[2:]) == [begins, waits, has_moved], ids
        figures = scrape(members, primary)
        assert figures['baton_leadership_orders_total{trigger="backup"}'] == 1
        assert figures['baton_leadership_moved_total'] == 1 and figures['baton_leadership_failed_total'] == 0
        assert 0 < figures['baton_leadership_gap_seconds_total'] < 5
        assert figures['baton_leadership_deferred_total{rule="handoffUnderWay"}'] == 1
        assert figures['baton_leadership_admitted_total{rule="slotConfirmed"}'] == 1


def test_a_takeover_by_priority_waits_for_the_end_of_a_task():
    """The member of the highest priority comes back to leadership when its work is done, and not before."""
    options = [{"priority": 2}, {}, {}]
    with ReplicaSet(settings=settings(), members=options) as members:
        members.await_that(lambda: members.hello(0).get("isWritablePrimary"), "the member of the highest priority")
        await_settled(members)
        with backup_on(members, 0):
            assert members.primary() != 0
            time.sleep(4 * ELECTION_SECS)
            assert members.primary() != 0, "it took over in the midst of its task"
        members.await_that(lambda: members.hello(0).get("isWritablePrimary"), "the member of the highest priority")


def test_an_idle_set_stays_as_it_is():
    """Without heavy work nothing is decided."""
    with ReplicaSet(settings=settings()) as members:
        primary = await_settled(members)
        time.sleep(3)
        told = status(members, primary)
        assert (told["handoffs"], told["stays"]) == ([], [])


@pytest.mark.parametrize("mode", ["always", "costBased"])
def test_a_task_waits_for_the_end_of_a_large_statement_before_leadership_moves(mode):
    """A move would end the statement, and drivers do not send again what changes many documents: the client is not to notice."""
    with ReplicaSet(settings=settings(mode)) as members, members.client() as client:
        client.shop.stock.insert_many([{"_id": number, "left": 0} for number in range(40_000)])
        primary = await_settled(members)
        outcome = concurrent.futures.Future()

        def change_all():
            try:
                outcome.set_result(client.shop.stock.update_many({}, {"$inc": {"left": 1}}).modified_count)
            except pymongo.errors.PyMongoError as error:
                outcome.set_exception(error)

        statement = threading.Thread(target=change_all)
        statement.start()
        time.sleep(2)
        assert not outcome.done(), "this machine is too fast for so few documents"
        with backup_on(members, primary):
            statement.join()
            assert outcome.result() == 40_000
            if mode == "always":
                assert members.primary() != primary
        rules = [stay["rule"] for stay in status(members, primary)["stays"]]
        assert "statementUnderWay" in rules, rules


def test_with_the_cost_model_leadership_moves_if_it_is_worth_it_and_the_decision_has_both_costs():
    """Whatever this machine's load makes of it: a move saves at least the absolute gain and the relative one, and a stay does not."""
    with ReplicaSet(settings=settings("costBased")) as members:
        primary = await_settled(members)
        with backup_on(members, primary):
            has_moved = members.primary() != primary
        told = status(members, primary)["handoffs" if has_moved else "stays"][-1]
        saved = told["stayingCostSecs"] - told["movingCostSecs"]
        is_worth = saved >= 0.5 and told["stayingCostSecs"] >= 2 * told["movingCostSecs"]
        assert is_worth == has_moved, told
        assert told["rule"] == ("worthMoving" if has_moved else "notWorthwhile"), told
