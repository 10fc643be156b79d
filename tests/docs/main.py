"""Types the documentation's command lines, as a reader would, and fails where one does not do what is written.

What reads them is lines.py. `make up` and `make install` are run as they are typed, but for the building: they take the binary under
test. Ports are others than those written, a home folder and a prefix are the test's own; URI, DIR and PROCESS stand for the set's
connection string, a folder, and the primary's process. In the second round the first has been left with its primary killed.

Invariant: a line is run, or declared with its reason (declared.py); a third thing does not exist.
"""

import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pymongo

import declared
import lines
from member import free_port
from mongosh import Mongosh, Silent, bare

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ["README.md"] + sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
PATIENCE_SECONDS = 90
# How long a load runs before its reader goes on: by then members know of it.
LOAD_SECONDS = 12
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
# Started once; the second round finds them running.
STARTS = re.compile(r"^(?:\$ )?(make up|make install|make help|baton up|baton serve|baton bench|baton task|baton status .* --watch|mongosh --port \d+ --eval)")


class Wrong(Exception):
    """A line that does not do what is written."""


class Reader:
    """Who types."""

    def __init__(self, scratch):
        self.folder = scratch / "work"
        self.home, self.prefix = scratch / "home", scratch / "prefix"
        for folder in (self.folder, self.home, self.prefix, scratch / "programs", scratch / "target/quick"):
            folder.mkdir(parents=True)
        (scratch / "target/quick/baton").symlink_to(os.path.abspath(os.environ["BATON"]))
        # `make` in the checkout, without building: the binary under test is what is built.
        make = scratch / "programs/make"
        make.write_text(f'#!/bin/sh\nexec {shutil.which("make")} --no-print-directory -C {ROOT} -o build -o libraries "$@"\n')
        make.chmod(0o755)
        first = consecutive_ports(3)
        serves = consecutive_ports(3)
        alone = free_port()
        self.ports = {"27100": str(alone)}
        self.ports |= {str(27017 + n): str(first + n) for n in range(3)} | {str(27101 + n): str(serves + n) for n in range(3)}
        self.paths = {"/tmp/baton": str(scratch / "other-data")}
        self.uri = f"mongodb://{','.join(f'127.0.0.1:{first + n}' for n in range(3))}/?replicaSet=rs0"
        self.environment = {
            **os.environ, "HOME": str(self.home), "PREFIX": str(self.prefix), "PORT": str(first),
            "CARGO_TARGET_DIR": str(scratch / "target"),
            "PATH": f"{scratch / 'programs'}:{self.prefix / 'bin'}:{os.environ['PATH']}"}
        self.environment.pop("MAKEFLAGS", None)
        self.groups, self.mongosh, self.session, self.printed = [], None, [], scratch / "up.out"

    # ---- typing ----

    def substituted(self, text):
        for written, real in {**self.ports, **self.paths}.items():
            text = re.sub(rf"(?<![\w/]){re.escape(written)}(?!\d)", real, text)
        text = re.sub(r"\bURI\b", f"'{self.uri}'", text)
        text = re.sub(r"\bDIR\b", "some-folder", text)
        return text.replace("PROCESS", str(self.primary_process()) if "PROCESS" in text else "PROCESS")

    def sh(self, text, may_run_on=False):
        """Runs a command as the shell would. One that goes on (`make up`, `… &`) is left running in its own group."""
        output = self.folder.parent / f"output-{len(self.groups)}-{time.monotonic_ns()}"
        with open(output, "wb") as out:
            process = subprocess.Popen(["bash", "-c", text], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        self.groups.append(process)
        deadline = time.monotonic() + (2 * PATIENCE_SECONDS if text.startswith("baton task") else PATIENCE_SECONDS)
        while process.poll() is None and time.monotonic() < deadline:
            if may_run_on and "stop      Ctrl-C" in output.read_text(errors="replace"):
                return output
            time.sleep(0.02)
        if process.poll() != 0:
            raise Wrong(f"exit code {process.poll()}:\n{output.read_text(errors='replace')[-2000:]}")
        if not text.rstrip().endswith("&"):
            self.groups.remove(process)
        return output

    def run(self, line):
        text = line.text
        if line.kind == "shown":
            return self.check_shown(line)
        if line.kind == "shell":
            # Who reads another page does so when the members that were killed on the last one are back.
            self.settle()
        if line.kind in ("session", "shell"):
            return self.type(line)
        words = text.split()
        if line.kind == "text" and words[0] == "baton" and len(words) == 2 and not words[1].startswith("-"):
            # The subcommand by its name alone.
            return self.sh(f"{text} --help")
        if text in declared.WITH_MORE:
            text = f"{text} {declared.WITH_MORE[text]}"
        if re.match(r"make up|baton up", text):
            return self.start(text)
        return self.sh(self.substituted(text))

    def start(self, text):
        """A set of its own for each of these; the README's is the one that everything else is typed at."""
        is_first = not self.printed.exists()
        if text.startswith("baton up"):
            text += f" --port {consecutive_ports(3)} --data {tempfile.mkdtemp(dir=self.folder)}"
        output = self.sh(self.substituted(text), may_run_on=True)
        if is_first:
            output.rename(self.printed)
        else:
            self.end(self.groups.pop())

    def check_shown(self, line):
        printed = self.printed.read_text()
        missing = [shown for shown in self.substituted(line.text).splitlines() if shown.rstrip() not in printed]
        if missing:
            raise Wrong("it does not print:\n" + "\n".join(missing) + f"\nbut:\n{printed}")

    def type(self, line):
        text = self.substituted(line.text)
        if text.startswith("$ mongosh"):
            self.close_mongosh()
            self.mongosh, self.session = Mongosh(text[2:], self.environment, self.folder), [text[2:]]
            return
        if text.startswith("$ "):
            if text.endswith("--watch"):
                printed = self.watch(text[2:])
            else:
                printed = self.sh(text[2:]).read_text(errors="replace")
            if text.startswith("$ baton bench"):
                time.sleep(LOAD_SECONDS)
            self.check_printed(line, printed)
            return
        if self.mongosh is None:
            self.mongosh, self.session = Mongosh(f"mongosh '{self.uri}'", self.environment, self.folder), []
        if text.startswith("use "):
            self.session.append(text)
        shown = self.typed_again(text) if line.text in declared.TYPED_AGAIN else bare(self.mongosh.type(text))
        expected = bare("\n".join(line.shown))
        if re.search(r"\b(?:Mongo\w*|Type|Reference|Syntax)Error\b", shown):
            raise Wrong(f"mongosh shows {shown}")
        if expected and shown != expected:
            raise Wrong(f"says    {expected}\nshows   {shown}")

    def watch(self, text):
        """What a command that does not end has printed after its second report."""
        with subprocess.Popen(["bash", "-c", f"exec {text}"], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            printed = ""
            while printed.count("\nset ") < 1:
                shown = process.stdout.readline()
                if not shown:
                    raise Wrong(f"it ends:\n{printed}")
                printed += shown
            process.terminate()
        return printed

    def check_printed(self, line, printed):
        """What is shown below a command is among what it prints, but for numbers: times, terms, ports."""
        there = [masked(one) for one in printed.splitlines()]
        missing = [one for one in line.shown if one not in ("", "...") and masked(one) not in there]
        if missing:
            raise Wrong("it does not print:\n" + "\n".join(missing) + f"\nbut:\n{printed}")

    def typed_again(self, text):
        """Types a line; and if its connection breaks under it, once more in a new session that goes where the old one was."""
        try:
            shown = bare(self.mongosh.type(text, patience_seconds=20))
        except Silent:
            shown = "MongoNetworkError"
        if "MongoNetworkError" not in shown:
            return shown
        self.mongosh.close()
        self.mongosh = Mongosh(self.session[0], self.environment, self.folder)
        for line in self.session[1:]:
            self.mongosh.type(line)
        return bare(self.mongosh.type(text))

    def close_mongosh(self):
        if self.mongosh:
            self.mongosh.close()
        self.mongosh = None

    # ---- the set ----

    def client(self):
        return pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=30_000)

    def primary_process(self):
        with self.client() as client:
            return client.admin.command("serverStatus")["pid"]

    def status(self):
        """How the set is, for whoever reads of a failure."""
        done = subprocess.run([os.environ["BATON"], "status", self.uri], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def settle(self):
        """Waits until every member is there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            told = self.status()
            if ": OK: " in told:
                return
            assert time.monotonic() < deadline, f"the set does not settle:\n{told}"
            time.sleep(0.2)

    def fail_over(self):
        """Kills the primary, and goes back to the first page; the member returns while that is read."""
        self.settle()
        self.close_mongosh()
        with self.client() as client:
            client.drop_database("shop")
        shutil.rmtree(self.folder / "dump", ignore_errors=True)
        killed = self.primary_process()
        os.kill(killed, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if self.primary_process() != killed:
                    return
            except pymongo.errors.PyMongoError:
                pass
            assert time.monotonic() < deadline, "no other member became primary"

    @staticmethod
    def end(process):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                deadline = time.monotonic() + 15
                while time.monotonic() < deadline:
                    process.poll()
                    reap(process.pid)
                    os.killpg(process.pid, 0)
                    time.sleep(0.02)
            except ProcessLookupError:
                return

    def close(self):
        self.close_mongosh()
        for process in self.groups:
            self.end(process)


def masked(text):
    return re.sub(r"\d+(?:\.\d+)*", "#", text.rstrip())


def reap(group):
    """Takes note of the ends of those whose parents have ended before them."""
    try:
        while os.waitpid(-group, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def consecutive_ports(count):
    """The first of so many free ports in a row."""
    while True:
        first = free_port()
        if first + count < 31_000 and all(is_free(first + n) and is_free(first + n + 1000) for n in range(count)):
            return first


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def check_declared(line):
    """What is not run must at least be there."""
    for target, rest in re.findall(r"\bmake ([a-z-]+)((?: [A-Z_]+=(?:\"[^\"]*\"|\S+))*)", line.text):
        if not re.search(rf"^{target}:", MAKEFILE, re.M):
            raise Wrong(f"the Makefile has no {target}")
        for name in re.findall(r"([A-Z_]+)=", rest):
            if not re.search(rf"\$\({name}\)|\$\(or \$\({name}\)|^{name} \?=", MAKEFILE, re.M):
                raise Wrong(f"the Makefile does not use {name}")
    for script in re.findall(r"(?:^|[ ;&])((?:tests|build|spec|lab)/[\w/.-]+\.sh)", line.text):
        if not os.access(ROOT / script, os.X_OK) and not (ROOT / script).name == "env.sh":
            raise Wrong(f"there is no {script}")


def main():
    # Whoever outlives the shell that started it becomes a child of this process (PR_SET_CHILD_SUBREAPER).
    ctypes.CDLL(None).prctl(36, 1)
    began = time.monotonic()
    every = [line for file in FILES for line in lines.of(file, (ROOT / file).read_text(encoding="utf-8"))]
    unused = (set(declared.NOT_RUN) | set(declared.WITH_MORE) | declared.TYPED_AGAIN) - {line.text for line in every}
    failures = [f"declared.py: no line of the documentation is: {text}" for text in sorted(unused)]
    run = 0
    with tempfile.TemporaryDirectory(prefix="baton-docs-") as scratch:
        reader = Reader(pathlib.Path(scratch))
        try:
            for around in (1, 2):
                seen = set()
                for line in every:
                    # The same words twice are one thing to know, but for a session, whose lines go together.
                    is_repeated = line.kind in ("text", "shell") and line.text in seen
                    seen.add(line.text)
                    if is_repeated or (around == 2 and (STARTS.match(line.text) or line.kind == "shown")):
                        continue
                    try:
                        if line.text in declared.NOT_RUN:
                            check_declared(line)
                            continue
                        if "-v" in sys.argv:
                            print(f"{time.monotonic() - began:6.1f} {line}", flush=True)
                        reader.run(line)
                        run += 1
                    except (Wrong, AssertionError, subprocess.SubprocessError, pymongo.errors.PyMongoError) as wrong:
                        failures.append(f"{line}\n{wrong}\n{reader.status()}" + ("\n(after a fail-over)" if around == 2 else ""))
                        reader.close_mongosh()
                if around == 1 and not failures:
                    reader.fail_over()
                elif around == 1:
                    break
        finally:
            reader.close()
    for failure in failures:
        print(failure.replace("\n", "\n    "))
    if failures:
        # Whoever sees the end of a log only has the lines by name.
        sys.exit("\n".join([f"docs: {len(failures)} failures"] + [failure.partition("\n")[0] for failure in failures]))
    print(f"docs: {run} command lines of {len(FILES)} files run in two rounds, {len(declared.NOT_RUN)} declared, all as written, "
          f"in {time.monotonic() - began:.0f} s")


main()
