"""Which loops wait for a file, decided on the text alone. Comments mark the line to ask for: `# ? path until`."""

from __future__ import annotations

import ast
import re
import textwrap

import pytest

from gpudiag.collect.source import Function, find_function
from gpudiag.collect.syntax_polls import WORDS, polls_at

LOOPS = {
    "while it exists": """
        def f():
            while os.path.exists(p):
                time.sleep(1)  # ? p gone
            after()  # ?
    """,
    "until it exists": """
        def f():
            while not (a and os.path.isfile(self.p)) and time.time() < end:
                time.sleep(1)  # ? self.p exists
    """,
    "break": """
        def f():
            while True:
                if os.access(p, os.R_OK):
                    log()
                    break
                time.sleep(1)  # ? p exists
    """,
    "return": """
        def f():
            while 1:
                if not exists(p):
                    return 3
                time.sleep(1)  # ? p gone
    """,
    "else": """
        def f():
            while True:
                if os.path.lexists(p):
                    time.sleep(1)  # ? p gone
                else:
                    break
    """,
    "a condition that does not end the loop": """
        def f():
            while True:
                if os.path.exists(p):
                    log()
                time.sleep(1)  # ?
    """,
    "methods of a path": """
        def f():
            while not (self.d / "x").is_file():
                time.sleep(1)  # ? self.d / 'x' exists
    """,
    "stat that fails": """
        def f():
            while True:
                try:
                    os.stat(p)
                    return
                except (FileNotFoundError, ValueError):
                    time.sleep(1)  # ? p exists
    """,
    "stat that succeeds": """
        def f():
            while True:
                try:
                    os.stat(p)
                except OSError:
                    break
                time.sleep(1)  # ? p gone
    """,
    "open": """
        def f():
            while True:
                try:
                    with open(p) as file:
                        data = file.read()
                except FileNotFoundError:
                    time.sleep(1)  # ? p exists
                else:
                    return data
    """,
    "exclusive open": """
        def f():
            while True:
                try:
                    fd = os.open(p, os.O_CREAT | os.O_EXCL)
                    break
                except FileExistsError:
                    time.sleep(1)  # ? p gone
    """,
    "mkdir": """
        def f():
            while True:
                try:
                    os.mkdir(p)
                    return
                except FileExistsError:
                    time.sleep(1)  # ? p gone
    """,
    "several files": """
        def f():
            while not os.path.exists(a) or not os.path.exists(b):
                time.sleep(1)  # ? a exists ? b exists
    """,
    "a loop in a loop": """
        def f():
            while not os.path.exists(a):
                while os.path.exists(b):
                    time.sleep(1)  # ? b gone
                while x:
                    time.sleep(1)  # ? a exists
    """,
    "no loop, or another one": """
        def f():
            if os.path.exists(p):
                time.sleep(1)  # ?
            for i in range(3):
                if os.path.exists(p):
                    break
                time.sleep(1)  # ?
            while x.poll() is None:
                time.sleep(1)  # ?
            while not os.path.exists(*p):
                time.sleep(1)  # ?
    """,
    "a function in a loop": """
        def f():
            while not os.path.exists(p):
                def g():
                    time.sleep(1)  # ? p exists
    """,
}


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_polls(name: str) -> None:
    text = textwrap.dedent(LOOPS[name])
    found = find_function(ast.parse(text), "f", 3)
    assert isinstance(found, Function)
    marks = {i: m[1] for i, line in enumerate(text.split("\n"), 1) if (m := re.search(r"# \?(.*)", line))}
    assert marks
    seen = {line: " ? ".join(f"{ast.unparse(p.path)} {p.until}" for p in polls_at(found.node, line)) for line in marks}
    assert seen == {line: mark.strip() for line, mark in marks.items()}
    assert any(word in text for word in WORDS)
