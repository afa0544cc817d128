"""GPD323: a blocking call inside a coroutine keeps the event loop of the frontend from serving anybody."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.stack import Frame, PyStack
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import consequences, culprit, label, standing, still
from gpudiag.rules.preflight.words import plural
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture

_LOOPS = (("asyncio/base_events.py", "_run_once"), ("uvloop/__init__.py", "run"), ("uvloop/__init__.py", "__init__"))
_IDLE = (
    "selectors.py",
    "asyncio/base_events.py",
    "asyncio/runners.py",
    "asyncio/events.py",
    "uvloop/__init__.py",
    "uvicorn/_compat.py",
)


def evaluate(picture: Picture) -> Iterator[Finding]:
    for member, process in picture.members():
        stack = picture.stack(process.pid, process.pid)
        inner = blocking_frame(stack) if stack is not None else None
        target = node.thread(process.pid, process.pid)
        motion = picture.motion(process.pid, process.pid)
        if inner is None or motion not in (Motion.FROZEN, Motion.SPINNING) or member.ranked:
            continue
        if any(e.wait.need == "reply" and e.holder != target for e in picture.edges_from(target)):
            continue
        pending, cause = picture.demand, picture.cause_of(target)
        if pending.state != "pending" or (pending.why == "client" and process.pid not in pending.frontends and cause is None):
            continue
        moved = still(picture, target)
        if moved is None:
            continue
        loop = Evidence(
            source="python-stack",
            claim="the event loop is inside a callback and not in its selector",
            excerpt=inner.where,
            at=picture.at,
        )
        requests = f"; {plural(pending.requests, 'request')} wait" if pending.requests else ""
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"the event loop of {label(picture, target)} is blocked in {inner.function}{requests}",
            links=((loop,), moved),
            culprits=(culprit(picture, target, frame=inner),),
            consequences=consequences(picture, cause),
            notes=(*standing(picture, target), *pending.evidence),
            next_steps=("the call on that line must be awaited or moved to a thread (`await asyncio.to_thread(...)`)",),
        )


def blocking_frame(stack: PyStack) -> Frame | None:
    """The first frame that a loop called into and that is no part of the loop itself; None while it sits in its selector."""
    for i, frame in enumerate(stack.frames):
        if any(frame.file.endswith(f) and frame.function.rsplit(".", 1)[-1] == n for f, n in _LOOPS):
            inner = [f for f in stack.frames[:i] if not f.file.endswith(_IDLE)]
            return inner[0] if inner else None
    return None


RULE = Rule(code="GPD323", name="event-loop-blocked", severity="error", evaluate=evaluate, specificity=72)
