"""GPD301: ranks wait for one that stays away, and nothing else explains why."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import (
    Terminal,
    all_waits,
    consequences,
    culprit,
    frame_of,
    label,
    standing,
    still,
    terminals,
    waited_for,
)
from gpudiag.rules.preflight.words import plural
from gpudiag.waits import flight
from gpudiag.waits.children import WAIT_CALLS
from gpudiag.waits.motion import BUSY
from gpudiag.waits.picture import Picture
from gpudiag.waits.streams import POLLS, READS, WRITES

_EXPLAINED = frozenset({"event", "ipc", "store", "p2p", "collective", "file-lock"})

_CALLS_THAT_WAIT = READS | WRITES | POLLS | WAIT_CALLS | {"futex", "flock", "fcntl", "accept", "accept4", "connect"}


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end in terminals(picture):
        ranks = picture.waiting_ranks(end.cause)
        away = flight.away(picture, end.pid)
        rests = (*(still(picture, end.node) or ()), *away)
        if end.member is None or not end.member.ranked or not ranks or end.motion in BUSY or not rests:
            continue
        if _waits_somehow(picture, end.pid, end.tid) or not (_fully_read(end) or (away and _position_read(end))):
            continue
        frame = frame_of(picture, end.node)
        where = f" in {frame.function}" if frame else ""
        links: list[Link] = [*waited_for(picture, end.cause), standing(picture, end.node), rests]
        if not _fully_read(end):
            links.append((_unread(picture, end),))
        count = f"{plural(len(ranks), 'rank')} {'waits' if len(ranks) == 1 else 'wait'}"
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, end.node)} stays away{where}; {count} for it",
            links=links,
            culprits=(culprit(picture, end.node),),
            consequences=consequences(picture, end.cause),
            notes=all_waits(picture, end.cause),
            next_steps=(
                (
                    f"look at the line where {label(picture, end.node)} stands:"
                    " it must come to the collective that the others wait in"
                ),
                f"a firmer verdict takes five seconds: `gpudiag attach {picture.server.root_pid} --once --confirm`",
            ),
        )


def _fully_read(end: Terminal) -> bool:
    """Without its stack, its locks and the files it polls a sleeping rank may wait for anything."""
    process = end.process
    return all(isinstance(r, Ok) for r in (process.stacks, process.lock_uses, process.file_polls, process.syscalls))


def _position_read(end: Terminal) -> bool:
    """Where it stands and what it sleeps in: enough to know a lock or a call that waits, if not to know whose."""
    return isinstance(end.process.stacks, Ok) and isinstance(end.process.syscalls, Ok)


def _unread(picture: Picture, end: Terminal) -> Evidence:
    claim = f"what keeps {label(picture, end.node)} there was not seen: its stack, locks or system calls could not be read"
    return Evidence(source="absence", claim=claim, at=picture.at)


def _waits_somehow(picture: Picture, pid: int, tid: int) -> bool:
    """Whether the rank stands in a wait whose other side is unknown: then 'it stays away' would be a guess."""
    known = picture.known(pid, tid)
    if known is not None and (known.kind in _EXPLAINED or known.need == "work"):
        return True
    process = picture.index.by_pid.get(pid)
    polls = process.file_polls.value if process is not None and isinstance(process.file_polls, Ok) else ()
    if any(poll.tid == tid for poll in polls):
        return True
    call = picture.index.syscall(pid, tid)
    return call is not None and call.name in _CALLS_THAT_WAIT


RULE = Rule(code="GPD301", name="rank-missing-at-collective", severity="error", evaluate=evaluate, specificity=0)
