"""`baton task`: a program as a task of a member, with that member in its environment and its exit code passed on."""

import os
import signal
import subprocess

import pytest

from member import Member
from replica_set import ReplicaSet
from test_member_kinds import eventually
from test_members import SOON
from test_tasks import EAGER, alone, begin


@pytest.fixture(scope="module")
def member():
    with Member() as member:
        yield member


def start(member, *program, kind="backup", options=(), **more):
    command = [os.environ["BATON"], "task", "--uri", member.uri, "--kind", kind, *options, "--", *program]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def run(member, *program, **more):
    process = start(member, *program, **more)
    out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


def tasks_of(client):
    tasks = client.admin.command("serverStatus")["tasks"]["running"]
    return [task["name"] for task in tasks if task["kind"] == "backup"]


def test_a_program_is_told_its_member_and_has_the_last_word(member):
    """It finds host, URI, role, id, kind and name in its environment; its exit code is passed on, and a signal that ended it."""
    shown = "; ".join(f"echo $BATON_TASK_{name}" for name in ("HOST", "URI", "ROLE", "KIND", "NAME", "ID"))
    code, out, errors = run(member, "sh", "-c", shown + "; exit 7", options=["--name", "nightly"])
    *told, task = out.splitlines()
    host = f"127.0.0.1:{member.port}"
    assert code == 7 and told == [host, f"mongodb://{host}/?directConnection=true", "primary", "backup", "nightly"]
    assert f"task {task} begins on {host}, a primary, after 0.0 s" in errors, errors
    with alone(member) as client:
        eventually(lambda: tasks_of(client) == [], "a task is left of a program that has ended")
    assert run(member, "sh", "-c", "kill -TERM $$")[0] == 143
    assert run(member, "true")[0] == 0


def test_what_comes_of_the_command_itself_has_codes_of_its_own(member):
    """No such program, one that cannot be run, a kind that nobody knows, a name that is taken, no member."""
    assert run(member, "/no/such/program")[0] == 127
    code, _, errors = run(member, "/etc/hostname")
    assert code == 126 and "/etc/hostname" in errors
    code, _, errors = run(member, "true", kind="lunch")
    assert code == 125 and "kind must be one of backup" in errors
    first = start(member, "sh", "-c", "echo $$; exec sleep 60", options=["--name", "nightly"])
    program = int(first.stdout.readline())
    with alone(member) as client:
        eventually(lambda: tasks_of(client) == ["nightly"], "the task does not begin")
        code, _, errors = run(member, "true", options=["--name", "nightly"])
        assert code == 125 and "'nightly' is running already" in errors
        # Whoever is killed ends its task; its program is nobody's then.
        first.kill()
        first.wait(30)
        eventually(lambda: tasks_of(client) == [], "the task of a process that was killed does not end")
    os.kill(program, signal.SIGKILL)
    first.communicate()
    nobody = subprocess.run([os.environ["BATON"], "task", "--uri", "mongodb://127.0.0.1:1", "--", "true"],
                            capture_output=True, text=True, timeout=60)
    assert nobody.returncode == 125 and "cannot reach 127.0.0.1:1" in nobody.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on_to_the_program(member, number):
    """The program decides what becomes of them; the task lasts until it has ended."""
    trap = f"trap 'echo got it; exit 3' {int(number)}; echo ready; while :; do sleep 0.05; done"
    process = start(member, "sh", "-c", trap, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (3, "got it\n")
    with alone(member) as client:
        assert tasks_of(client) == []


def test_a_connection_that_breaks_does_not_hold_the_program_up():
    """It is said, the program goes on, and is a task again when its member is back; then nothing is left of it."""
    with Member() as member:
        process = start(member, "sleep", "60", options=["--name", "long"], start_new_session=True)
        with alone(member) as client:
            eventually(lambda: tasks_of(client) == ["long"], "the task does not begin")
        member.kill()
        lines = [process.stderr.readline() for _ in range(2)]
        assert "has ended with its connection; the program goes on" in lines[1], lines
        assert process.poll() is None
        member.start()
        assert "the program is task" in process.stderr.readline()
        with alone(member) as client:
            assert tasks_of(client) == ["long"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 143
            eventually(lambda: tasks_of(client) == [], "a task is left of a program that has ended")
        process.communicate()


def test_a_task_says_what_it_waits_for_and_waits_longer_than_any_answer_may_take():
    """One of two secondaries is busy: `baton task` on the other says so once, keeps its place beyond socketTimeoutMS, and then begins.

    A member that is stopped meanwhile is given up instead of being waited for."""
    with ReplicaSet(settings=EAGER) as members:
        one, other = members.others(members.primary())
        with alone(members, one) as busy, alone(members, other) as watcher:
            first = begin(busy, maxWaitSecs=30)
            command = [os.environ["BATON"], "task", "--name", "patient", "--uri",
                       f"mongodb://{members.hosts[other]}/?directConnection=true&socketTimeoutMS=1000", "--", "true"]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            said = process.stderr.readline()
            assert f"baton task: {members.hosts[other]}: the task waits: " in said and "confirmed" in said, said
            since = watcher.admin.command("serverStatus")["tasks"]["waiting"][0]["sinceMs"]
            eventually(lambda: watcher.admin.command("serverStatus")["tasks"]["waiting"][0]["sinceMs"] > since + 2000,
                       "the task does not keep its place")
            busy.admin.command("replSetEndTask", 1, taskId=first["taskId"])
            _, errors = process.communicate(timeout=30)
            assert process.returncode == 0 and "begins on" in errors and "asking again" not in errors, errors

            begin(busy, maxWaitSecs=30)
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            process.stderr.readline()
            members.pause(other)
            try:
                assert "asking again" in process.stderr.readline()
            finally:
                process.kill()
                process.communicate()
                members.resume(other)


def test_a_set_gives_the_task_to_the_member_that_the_string_wants():
    """The primary unless readPreference says otherwise; the program's connection string means that member alone."""
    with ReplicaSet(settings={**SOON, "leadership": {"mode": "off"}}) as members:
        for preference, role in (("primary", "primary"), ("secondary", "secondary")):
            command = [os.environ["BATON"], "task", "--uri", f"{members.uri}&readPreference={preference}", "--",
                       "sh", "-c", "echo $BATON_TASK_ROLE; echo $BATON_TASK_HOST"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            told, host = done.stdout.split()
            assert told == role
            index = members.hosts.index(host)
            assert bool(members.hello(index).get("isWritablePrimary")) == (role == "primary")
