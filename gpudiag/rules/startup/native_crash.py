"""GPD217: a process died in native code: SIGSEGV, SIGILL, SIGBUS, SIGFPE or SIGABRT."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.model.log import Speaker, StackDump, TraceFrame
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule, lost_library
from gpudiag.rules.log.findings import consequences, dump_evidence, global_rank, line_evidence, lost_rank, node_of, who
from gpudiag.rules.startup.worker_killed_by_signal import SIGNALS, death_code, exit_code, victim_of

CODE: Final = "GPD217"
NAME: Final = "native-crash"

_NATIVE: Final = {-4, -6, -7, -8, -11}
_SIGNAL: Final = re.compile(r"Segmentation fault|Segfault|Illegal instruction|Bus error|Aborted|Floating-point exception")


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is None or event.kind not in ("native-crash", "worker-died", "elastic"):
        return
    code = death_code(case.facts, event)
    if event.kind != "native-crash" and code not in _NATIVE:
        return
    died = (
        event
        if event.kind != "native-crash"
        else next((e for e in case.facts.of("worker-died", "elastic") if exit_code(e) in _NATIVE), None)
    )
    code = exit_code(died) if died is not None else code
    speaker = victim_of(case.facts, died) if died is not None else lost_rank(case).speaker
    dump = next((d for d in case.facts.dumps if d.tool == "faulthandler"), None)
    said = _SIGNAL.search(event.text)
    name = (
        SIGNALS[-code]
        if code is not None and -code in SIGNALS
        else said.group(0)
        if said
        else event.fields.get("error", "a fatal error")
    )
    frame = _frame(dump)
    where = f" in {frame.function} ({frame.file.rpartition('/')[2]}:{frame.line})" if frame else ""
    evidence: list[Evidence] = [
        line_evidence(case.facts, event, "the crash", source="exit-status" if died is event else "log-line")
    ]
    if died is not None and died is not event:
        evidence.append(line_evidence(case.facts, died, "the exit status that its parent saw", source="exit-status"))
    if dump is not None:
        evidence.append(dump_evidence(case.facts, dump, "faulthandler's stack at the crash"))
    yield finding(
        CODE,
        NAME,
        "error",
        title=f"{who(case.facts, speaker)} crashed in native code ({name}){where}",
        links=[evidence],
        next_steps=_steps(code, name, dump is not None),
        culprits=[_culprit(case, speaker, frame)],
        consequences=consequences(case),
    )


def _frame(dump: StackDump | None) -> TraceFrame | None:
    """The innermost Python frame of the crashing thread that is not the interpreter's own."""
    if dump is None:
        return None
    thread = next((t for t in dump.threads if t.active and t.frames), None)
    if thread is None:
        return None
    return next((f for f in thread.frames if not lost_library(f.file)), thread.frames[0])


def _culprit(case: LogCase, speaker: Speaker, frame: TraceFrame | None) -> Culprit:
    return Culprit(
        node=node_of(case.facts, speaker),
        pid=speaker.pid,
        rank=global_rank(case.facts, speaker),
        file=frame.file if frame else None,
        line=frame.line if frame else None,
        function=frame.function if frame else None,
    )


def _steps(code: int | None, name: str, stacks: bool) -> list[str]:
    steps = [
        "dmesg -T | grep -iE 'segfault|trap|mce' | tail",
        "gpudiag kernels check, for a library that was built for other headers or another GPU",
    ]
    if code == -4 or "Illegal" in name:
        steps.insert(0, "lscpu | grep -i flags: the binary uses instructions this processor lacks")
    if code == -7 or "Bus" in name:
        steps.insert(0, "df -h /dev/shm: SIGBUS is what a full /dev/shm looks like")
    if not stacks:
        steps.append("start again with PYTHONFAULTHANDLER=1 to get the Python stack of the crash")
    return steps


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=60, evaluate=_evaluate)
