"""mongosh as a typed session that stays open while other things happen."""

import itertools
import os
import re
import subprocess
import threading

PATIENCE_SECONDS = 60
_marks = itertools.count()


class Silent(AssertionError):
    """It answers nothing."""


class Mongosh:
    """One session. `type` gives what is shown for a line."""

    def __init__(self, command, environment, folder):
        # With the terminal forced off, so that what is shown is the output alone.
        self._process = subprocess.Popen(
            f"exec {command} --quiet --norc", shell=True, executable="/bin/bash", text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder,
            env={**environment, "MONGOSH_FORCE_TERMINAL": "", "NO_COLOR": "1"})
        self._shown, self._news, self._ended = "", threading.Condition(), False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while piece := os.read(self._process.stdout.fileno(), 65536):
            with self._news:
                self._shown += piece.decode(errors="replace")
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def type(self, line, patience_seconds=PATIENCE_SECONDS):
        mark = f"<<{next(_marks)}>>"
        # Put together, so that what is echoed is not taken for it.
        self._process.stdin.write(f"{line}\nprint('<<' + '{mark[2:]}')\n")
        self._process.stdin.flush()
        with self._news:
            if not self._news.wait_for(lambda: mark in self._shown or self._ended, patience_seconds):
                raise Silent(f"mongosh answers nothing to {line}:\n{self._shown}")
            assert mark in self._shown, f"mongosh ended at {line}:\n{self._shown}"
            shown, _, self._shown = self._shown.partition(mark)
        return shown

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def bare(text):
    """The output alone: no prompts, no space that only shapes it."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    text = re.sub(r"^(?:\w+ \[[^\]]*\] \S+> |\S+> |\| |\.\.\. )+", "", text, flags=re.M)
    return re.sub(r"\s+", " ", text).strip()
