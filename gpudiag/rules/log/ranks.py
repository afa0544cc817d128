"""Ranks in words and as culprits, for rules that know them only by number."""

from __future__ import annotations

from collections.abc import Sequence

from gpudiag.model.finding import Culprit, Evidence
from gpudiag.model.log import LogFacts, StackDump
from gpudiag.model.node import process
from gpudiag.model.node import rank as rank_node
from gpudiag.rules.log.case import lost_library
from gpudiag.rules.log.findings import dump_evidence


def names(ranks: Sequence[int]) -> str:
    """'rank 3', 'ranks 0-4, 6'."""
    spans: list[list[int]] = []
    for index in sorted(ranks):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    text = ", ".join(str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}-{b}" for a, b in spans[:12])
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def dump_of(facts: LogFacts, index: int) -> StackDump | None:
    """The stack dump of a rank, if there is one with frames."""
    return next((d for d in facts.dumps if d.speaker.rank.global_ == index and d.threads), None)


def rank_culprit(facts: LogFacts, index: int) -> Culprit:
    """A rank as culprit; where its stack was dumped, with the frame in which it stands."""
    dump = dump_of(facts, index)
    pid = (
        dump.pid
        if dump
        else next((m.speaker.pid for m in facts.milestones if m.speaker.rank.global_ == index and m.speaker.pid), None)
    )
    thread = next((t for t in dump.threads if t.name in ("MainThread", "Current thread")), dump.threads[0]) if dump else None
    frame = next((f for f in thread.frames if not lost_library(f.file)), None) if thread else None
    return Culprit(
        node=process(pid) if pid is not None else rank_node("global", index),
        pid=pid,
        rank=index,
        file=frame.file if frame else None,
        line=frame.line or None if frame else None,
        function=frame.function if frame else None,
    )


def stack_notes(facts: LogFacts, ranks: Sequence[int]) -> list[Evidence]:
    """The stacks of these ranks, as far as they were dumped."""
    found = [(r, dump_of(facts, r)) for r in ranks[:8]]
    return [dump_evidence(facts, d, f"where rank {r} stands") for r, d in found if d is not None]
