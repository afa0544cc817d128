"""How gpudiag is asked about what was staged: always through a command, as a person does, and always answered by a report."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, Final

from tests.cli.programs import command, environment
from tests.faults.case import Report

LIMIT_S: Final = 120.0
_FINDING: Final = re.compile(r"^(\S) (GPD\d{3})  (.*?)  +(proven|strong|weak)$")
_SEVERITY: Final = {"X": "error", "!": "warning", "i": "info"}


def run(arguments: tuple[str, ...], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def printed(arguments: tuple[str, ...]) -> Report:
    """What the command prints with --json."""
    done = run((*arguments, "--json", "--fail-on", "never"))
    if not done.stdout:
        raise RuntimeError(f"gpudiag {' '.join(arguments)} said nothing: {done.stderr}")
    report: Report = json.loads(done.stdout)
    return report


def refusal(arguments: tuple[str, ...], **variables: str) -> Report:
    """What `gpudiag launch` says on stderr before it starts anything, which has no JSON. The first finding is the verdict."""
    name, *rest = arguments
    done = run((name, "--ascii", *rest), **variables)
    found: list[dict[str, Any]] = []
    for line in done.stderr.splitlines():
        if head := _FINDING.match(line):
            mark, code, title, confidence = head.groups()
            found.append({"code": code, "severity": _SEVERITY[mark], "title": title, "confidence": confidence})
        elif found and line.startswith(" " * 10) and "told" not in found[-1]:
            found[-1]["title"] += f" {line.strip()}"
        elif found:
            found[-1]["told"] = True
    if done.returncode != (1 if any(f["severity"] == "error" for f in found) else 0):
        raise RuntimeError(f"gpudiag {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return {"verdict": {"status": "finding", **found[0], "culprits": []} if found else NOTHING, "findings": found}


NOTHING: Final[dict[str, Any]] = {
    "status": "healthy",
    "code": None,
    "severity": None,
    "confidence": None,
    "title": "",
    "culprits": [],
}


def no_answer(error: Exception) -> Report:
    """What stands for a report where none came: wrong for every entry, whatever was planted."""
    return {"verdict": {**NOTHING, "status": "insufficient", "severity": "error", "title": f"no answer: {error}"}, "findings": []}
