"""Who looks sees moves and tasks: `baton status --watch`, and the hour that a member draws on its status page."""

import html
import os
import re
import subprocess
import urllib.request

import pytest

from replica_set import ReplicaSet
from test_task_program import start
from test_tasks import EAGER


@pytest.fixture(scope="module")
def moved():
    """A set whose leadership has moved before a program's work, which still runs; with the indexes of the old and the new primary."""
    with ReplicaSet(settings=EAGER) as members:
        old = members.primary()
        for index in range(3):
            members.await_that(lambda: f"{members.hosts[old]} was primary" in page_of(members, index), "the first primary on every page")
        process = start(members, "sh", "-c", "echo ready; exec sleep 120", options=["--name", "long"])
        assert process.stdout.readline() == "ready\n"
        new = members.await_primary_among(members.others(old))
        # It may have said before what it waits for.
        yield members, old, new, next(line for line in process.stderr if ": the task waits: " not in line)
        process.terminate()
        process.communicate()


def test_the_program_says_how_leadership_moved(moved):
    """One line before the program begins."""
    members, old, new, line = moved
    words = rf"baton task: task \d+ begins on {members.hosts[old]}, a secondary, after \d+\.\d s; " \
            rf"leadership moved to {members.hosts[new]} first \(nobody took writes for \d+ ms\)\n"
    assert re.fullmatch(words, line), line


def test_watching_shows_the_primary_the_tasks_and_the_last_moves(moved):
    """Again and again: by whom, to whom, why, and for how long nobody took writes. What is no terminal gets one report after the other."""
    members, old, new, _ = moved
    with subprocess.Popen([os.environ["BATON"], "status", members.uri, "--watch"], stdout=subprocess.PIPE, text=True) as watch:
        lines = []
        while sum(line.startswith("set rs0: ") for line in lines) < 2:
            lines.append(watch.stdout.readline())
        watch.terminate()
    text = "".join(lines)
    assert f"set rs0: OK: primary {members.hosts[new]}, term" in lines[0], text
    task = next(line for line in lines if line.startswith(members.hosts[old]))
    assert "SECONDARY" in task and "backup (running" in task, text
    moves = rf"from {members.hosts[old]} to {members.hosts[new]} " \
            r"\(backup: leadership moves before every heavy task\); nobody took writes for \d+ ms"
    assert "leadership moved\n" in lines and re.search(moves, text), text


def page_of(members, index):
    port = members.members[index].port + 1000
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        return html.unescape(answer.read().decode())


@pytest.mark.parametrize("which", ["old", "new"])
def test_the_page_draws_the_hour_with_every_members_part_of_it(moved, which):
    """A lane each: who was primary, the task where it runs; the handoff with its gap on the page of who made it."""
    members, old, new, _ = moved
    index = old if which == "old" else new

    def drawn():
        page = page_of(members, index)
        svg = page[page.index("<svg class=timeline"):page.index("</svg>")]
        was = [f"{members.hosts[new]} was primary", f"backup ran on {members.hosts[old]}"]
        if which == "old":
            was.append(f"handed over to {members.hosts[new]} (backup: leadership moves before every heavy task); nobody took writes")
        return all(words in svg for words in was) and all(f">{host}</text>" in svg for host in members.hosts) and svg

    svg = members.await_that(drawn, f"the hour on the page of the {which} primary")
    assert f"{members.hosts[old]} was primary" in svg, "both saw the first one"
