"""What must not be in the project: paths of the machine it was written on, and work put off."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.checkout import ROOT, project_files

# Written so that this file does not contain what it looks for.
FORBIDDEN = {
    "a path of the machine it was written on": rb"(?<![\w.~-])/(?:work|tmp/brief)[/.]",
    "work put off": rb"\b(?:TO[D]O|FIX[M]E|XX[X])\b",
    "a merge that was not finished": rb"^(?:<{7}|>{7}) ",
}


def offences(pattern: bytes, paths: tuple[Path, ...]) -> list[str]:
    found = re.compile(pattern, re.MULTILINE)
    return [
        f"{path}:{number}: {line.decode(errors='replace').strip()[:100]}"
        for path in paths
        for number, line in enumerate((ROOT / path).read_bytes().splitlines(), 1)
        if found.search(line)
    ]


@pytest.mark.parametrize("what", sorted(FORBIDDEN))
def test_no_file_contains(what: str) -> None:
    paths = project_files()
    assert paths
    assert offences(FORBIDDEN[what], paths) == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of the machine it was written on", "open('/wo" + "rk/main/x')"),
        ("work put off", "# TO" + "DO: later"),
        ("a merge that was not finished", "<" * 7 + " HEAD"),
    ],
)
def test_the_patterns_find_what_they_are_for(what: str, line: str) -> None:
    assert re.search(FORBIDDEN[what], line.encode(), re.MULTILINE)
    assert not re.search(FORBIDDEN[what], b"a worker in /workspace, a network/work/item, xxx", re.MULTILINE)
