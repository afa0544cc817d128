"""GPD210: a process of the server was killed by a signal, and nothing says why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.model.log import Event, LogFacts, Speaker
from gpudiag.model.server import Rank
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import from_line

CODE: Final = "GPD210"
NAME: Final = "worker-killed-by-signal"

SIGNALS: Final = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
    24: "SIGXCPU",
}

_SHELL_KILLED: Final = re.compile(r"line \d+: +\d+ Killed\b")


def exit_code(event: Event) -> int | None:
    """The exit code a line names: negative for a signal; a shell's 128 + n is turned into -n."""
    text = event.fields.get("code", "")
    if not re.fullmatch(r"-?\d{1,6}", text):
        return -9 if _SHELL_KILLED.search(event.text) else None
    code = int(text)
    return 128 - code if 128 < code < 160 else code


def death_code(facts: LogFacts, event: Event) -> int | None:
    """The same, with the code that SGLang prints in a line of its own behind 'Rank n scheduler is dead'."""
    code = exit_code(event)
    if code is not None or "rank" not in event.fields:
        return code
    near = (
        e
        for e in facts.of("worker-died")
        if e.place.source == event.place.source and 0 < e.place.number - event.place.number <= 4
    )
    return next((c for c in map(exit_code, near) if c is not None), None)


def victim_of(facts: LogFacts, event: Event) -> Speaker:
    """The process that a death notice names, which is not the one that wrote it."""
    name = event.fields.get("name", "")
    pid = event.fields.get("pid", "")
    number = re.search(r"[-_](\d{1,5})$", name)
    index = event.fields.get("rank") or event.fields.get("local_rank") or (number.group(1) if number else "")
    rank = Rank(global_=int(index[:6])) if index else Rank()
    known = next(
        (m.speaker for m in facts.milestones if index and m.speaker.rank.global_ == int(index[:6]) and m.speaker.pid is not None),
        None,
    )
    return Speaker(tag=name or (known.tag if known else ""), pid=int(pid[:9]) if pid else known.pid if known else None, rank=rank)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is None or event.kind not in ("worker-died", "elastic"):
        return
    code = death_code(case.facts, event)
    if code is not None and code >= 0:
        # It ended by itself: how is not in the parent's notice, and a signal it was not.
        return
    name = SIGNALS.get(-code, f"signal {-code}") if code is not None else "a signal or a crash that the notice does not name"
    steps = ["dmesg -T | grep -iE 'out of memory|oom-kill|killed process|segfault'", "cat /sys/fs/cgroup/memory.events"]
    if code == -9:
        steps.append(
            "no record of the kernel there: somebody sent SIGKILL (a person, "
            "the container runtime, a batch system); read that system's events"
        )
    yield from_line(
        case,
        CODE,
        NAME,
        event,
        f"{{who}} was killed by {name}" + ("; the logs hold no out-of-memory record" if code == -9 else ""),
        steps,
        claim="the exit status that its parent saw" if code is not None else "the parent's notice",
        source="exit-status" if code is not None else "log-line",
        speaker=victim_of(case.facts, event),
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=40, evaluate=_evaluate)
