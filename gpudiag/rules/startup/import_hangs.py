"""GPD227: an import does not come back: the process stands inside the import machinery in a stack dump of a start-up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.log import StackDump, TraceFrame
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import dump_evidence, global_rank, node_of, who

CODE: Final = "GPD227"
NAME: Final = "import-hangs"


def _evaluate(case: LogCase) -> Iterable[Finding]:
    if case.failure.kind not in ("hang", "victim"):
        return
    for dump in case.facts.dumps:
        frame = _importing(dump)
        if frame is None:
            continue
        facts, speaker = case.facts, dump.speaker
        yield finding(
            CODE,
            NAME,
            "error",
            title=f"{who(facts, speaker)} (pid {dump.pid}) stands in an import at {frame.file}:{frame.line}",
            links=[[dump_evidence(facts, dump, "the main thread is inside the import machinery")]],
            next_steps=[
                "dump again after 10 s: the same frame means that it does not move",
                "gpudiag doctor, for stale compiler locks and slow storage",
            ],
            culprits=[
                Culprit(
                    node=node_of(facts, speaker),
                    pid=dump.pid,
                    rank=global_rank(facts, speaker),
                    file=frame.file,
                    line=frame.line,
                    function=frame.function,
                )
            ],
        )
        return


def _importing(dump: StackDump) -> TraceFrame | None:
    """The frame at module level that the main thread is stuck in, if an import is under way and not finished above it."""
    main = next((t for t in dump.threads if t.name in ("MainThread", "Current thread")), None)
    if main is None:
        return None
    for index, frame in enumerate(main.frames):
        if "importlib" in frame.file and "_bootstrap" in frame.file:
            return next((f for f in reversed(main.frames[:index]) if f.function == "<module>"), main.frames[max(0, index - 1)])
    return None


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=55, evaluate=_evaluate)
