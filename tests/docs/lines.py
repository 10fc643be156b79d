"""The command lines of a Markdown file, in the order in which a reader meets them.

A line is one of:

    sh        a command of a fenced block that is marked `sh`; over several lines if the shell would ask for more
    session   what is typed in an unmarked block that begins with `$`: after `$` to the shell, after `… [primary] db>` to mongosh,
              with what the block shows below it
    text      a command within the text or a table: a span of code that begins with a program's name
    shell     the same for what is typed into mongosh: rs.…, db.…
    shown     an unmarked block after an `sh` block which says what that prints ("Baton is up: …")
"""

import dataclasses
import re
import subprocess

PROGRAM = re.compile(r"^(?:(?:baton|make|mongosh|cargo|npm|kill|docker|git|curl) \S|\. \S+;|[\w./-]+\.sh\b(?! \())")
SHELL = re.compile(r"^(?:rs|db|sh)\.\w+\(")
PROMPT = re.compile(r"^\w+ \[\w+\] (\S+)> (.*)$")


@dataclasses.dataclass
class Line:
    file: str
    number: int
    kind: str
    text: str
    shown: list = dataclasses.field(default_factory=list)

    def __str__(self):
        return f"{self.file}:{self.number}: {self.text}"


def of(name, text):
    """All lines of a file."""
    found, prose, fence, begins, lines = [], [], None, 0, text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if fence is None:
                fence, begins = line[3:].strip(), number
            else:
                found += of_block(name, begins + 1, fence, lines[begins:number - 1])
                fence = None
            prose.append("")
        else:
            prose.append("" if fence is not None else line)
    found += of_prose(name, prose)
    return sorted(found, key=lambda line: line.number)


def of_block(name, number, kind, block):
    if kind == "sh":
        return list(commands(name, number, block))
    if kind:
        return []
    if block and block[0].startswith("$ "):
        return list(session(name, number, block))
    if block and block[0].startswith("Baton is up"):
        return [Line(name, number, "shown", "\n".join(block))]
    return []


def commands(name, number, block):
    """One for each command that the shell takes as whole."""
    begun, begins = [], number
    for at, line in enumerate(block, number):
        if not begun and (not line.strip() or line.lstrip().startswith("#")):
            continue
        if not begun:
            begins = at
        begun.append(line)
        text = "\n".join(begun)
        if not text.endswith("\\") and subprocess.run(["bash", "-n", "-c", text], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            yield Line(name, begins, "sh", text)
            begun = []
    assert not begun, f"{name}:{begins}: the shell does not understand this block"


def session(name, number, block):
    last = None
    for at, line in enumerate(block, number):
        typed = PROMPT.match(line)
        if line.startswith("$ "):
            last = Line(name, at, "session", line)
        elif typed:
            last = Line(name, at, "session", typed.group(2))
        else:
            last.shown.append(line)
            continue
        yield last


def of_prose(name, prose):
    """Spans of code, which may go over the end of a line."""
    text = "\n".join(prose)
    for span in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text):
        code = " ".join(span.group(1).split())
        number = text.count("\n", 0, span.start()) + 1
        if "…" in code:
            continue
        if PROGRAM.match(code):
            yield Line(name, number, "text", code)
        elif SHELL.match(code):
            yield Line(name, number, "shell", code)
