"""From a failure to a finding: the culprit, the evidence and the consequences, the same way in every rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpudiag.model.finding import Consequence, Culprit, Evidence, Finding, Severity
from gpudiag.model.log import Event, LogFacts, Speaker, StackDump, Traceback
from gpudiag.model.node import OUTSIDE, Node, process
from gpudiag.model.node import rank as rank_node
from gpudiag.model.server import Rank
from gpudiag.rules.base import finding
from gpudiag.rules.log.blame import rank_of_process, silent_rank
from gpudiag.rules.log.case import Failure, LogCase, blamed_frame, telling_node
from gpudiag.rules.log.places import at
from gpudiag.rules.log.words import said, short_file

EXCERPT: Final = 400
MOST_CONSEQUENCES: Final = 16
_ABOUT_VERSIONS: Final = frozenset({"GPD203", "GPD204", "GPD206", "GPD218", "GPD223", "GPD226"})
"""Kinds that the versions of driver, CUDA and torch help to understand."""


def global_rank(facts: LogFacts, speaker: Speaker) -> int | None:
    """The global rank of a process: stated, or computed from its coordinates when the group sizes are known."""
    rank = rank_of_process(facts, speaker)
    if rank.global_ is not None:
        return rank.global_
    if rank.tp is None or not facts.tensor_parallel:
        return None
    if rank.dp in (None, 0) and rank.pp is not None:
        return rank.pp * facts.tensor_parallel + rank.tp
    # In SGLang a data-parallel rank may lie inside the tensor-parallel group, so only vLLM's numbers can be added up.
    if rank.dp is not None and rank.pp in (None, 0) and facts.engine == "vllm":
        return rank.dp * facts.tensor_parallel + rank.tp
    return None


def node_of(facts: LogFacts, speaker: Speaker) -> Node:
    """The process if its pid is known, else its rank, else the server as a whole."""
    if speaker.pid is not None:
        return process(speaker.pid)
    index = global_rank(facts, speaker)
    if index is not None:
        return rank_node("global", index)
    return process(facts.root_pid) if facts.root_pid is not None else OUTSIDE


def who(facts: LogFacts, speaker: Speaker) -> str:
    """How a sentence names the process: 'rank 1', 'EngineCore', 'the server'."""
    index = global_rank(facts, speaker)
    if index is not None:
        return f"rank {index}"
    return speaker.tag if speaker.tag and speaker.tag != "root" else "the server"


def culprit(
    facts: LogFacts, speaker: Speaker, node: Traceback | None = None, *, path: str | None = None, kernel: str | None = None
) -> Culprit:
    """Where to look, from the traceback's own frame."""
    frame = blamed_frame(node) if node is not None else None
    return Culprit(
        node=node_of(facts, speaker),
        pid=speaker.pid,
        rank=global_rank(facts, speaker),
        file=frame.file if frame else None,
        line=frame.line if frame and frame.line else None,
        function=frame.function or None if frame else None,
        path=path,
        kernel=kernel,
        host=speaker.host,
    )


def traceback_evidence(facts: LogFacts, node: Traceback) -> Evidence:
    """The offending source text and the exception line, as the interpreter prints them."""
    frame = blamed_frame(node)
    where = f", in {short_file(frame.file)}:{frame.line}" if frame else ""
    source = f"{frame.source.strip()}\n" if frame and frame.source.strip() else ""
    return Evidence(
        source="traceback", claim=f"raised at {at(facts, node.place)}{where}", excerpt=(source + node.headline)[:EXCERPT]
    )


def line_evidence(facts: LogFacts, event: Event, claim: str, *, source: str = "log-line") -> Evidence:
    return Evidence(source=source, claim=f"{claim} ({at(facts, event.place)})", excerpt=event.text[:EXCERPT])


def dump_evidence(facts: LogFacts, dump: StackDump, claim: str) -> Evidence:
    frames = next((t.frames for t in dump.threads if t.active), dump.threads[0].frames if dump.threads else ())
    shown = "\n".join(f"{f.function} ({f.file}:{f.line})" for f in frames[:6]) or dump.reason
    return Evidence(source="python-stack", claim=f"{claim} ({at(facts, dump.place)})", excerpt=shown[:EXCERPT])


def consequences(case: LogCase, node: Traceback | None = None) -> tuple[Consequence, ...]:
    """The other ranks that failed the same way, and the victims' messages that came after."""
    facts, main = case.facts, case.failure
    out: dict[str, Consequence] = {}
    for trace in facts.tracebacks:
        if trace is main.trace or not trace.exception:
            continue
        reason = trace.victim or next((n.victim for n in trace.chain() if n.victim), None)
        same = node is not None and any(
            n.exception == node.exception and n.message[:120] == node.message[:120] for n in trace.chain()
        )
        if same and who(facts, trace.speaker) == who(facts, main.speaker):
            continue
        title = (
            f"{who(facts, trace.speaker)} fails the same way"
            if same
            else f"{who(facts, trace.speaker)}: {reason}"
            if reason
            else ""
        )
        if title and len(out) < MOST_CONSEQUENCES:
            out.setdefault(title, Consequence(node=node_of(facts, trace.speaker), title=title))
    for event in facts.of("victim"):
        title = f"{who(facts, event.speaker)}: {said(event.fields.get('what', event.text), 60)}"
        if len(out) < MOST_CONSEQUENCES:
            out.setdefault(title.partition(". ")[0], Consequence(node=node_of(facts, event.speaker), title=title))
    return tuple(out.values())


def raised(
    case: LogCase,
    code: str,
    name: str,
    node: Traceback,
    title: str,
    next_steps: Sequence[str],
    *,
    severity: Severity = "error",
    path: str | None = None,
    notes: Sequence[Evidence] = (),
) -> Finding:
    """A finding that rests on an exception. `{who}` in the title becomes the process that raised it."""
    facts = case.facts
    return finding(
        code,
        name,
        severity,
        title=title.replace("{who}", who(facts, case.failure.speaker)),
        links=[[_told_by(case, node)]],
        next_steps=next_steps,
        culprits=[culprit(facts, case.failure.speaker, telling_node(case.failure.trace, node), path=path)],
        notes=(*notes, *(environment(facts) if code in _ABOUT_VERSIONS else ())),
        consequences=consequences(case, node),
    )


def environment(facts: LogFacts) -> list[Evidence]:
    """What collect-env or nvidia-smi, given together with the log, say about versions."""
    return [
        Evidence(
            source="log-line",
            claim=f"{d.kind} ({at(facts, d.place)})",
            excerpt=", ".join(f"{k}: {v}" for k, v in d.fields.items())[:EXCERPT],
        )
        for d in facts.documents
        if d.kind != "ncclras" and d.fields
    ]


def _told_by(case: LogCase, node: Traceback) -> Evidence:
    event = case.failure.event
    return line_evidence(case.facts, event, "the log says so") if event is not None else traceback_evidence(case.facts, node)


def from_line(
    case: LogCase,
    code: str,
    name: str,
    event: Event,
    title: str,
    next_steps: Sequence[str],
    *,
    claim: str,
    source: str = "log-line",
    severity: Severity = "error",
    path: str | None = None,
    speaker: Speaker | None = None,
    notes: Sequence[Evidence] = (),
) -> Finding:
    """A finding that rests on one line."""
    facts = case.facts
    speaker = event.speaker if speaker is None else speaker
    return finding(
        code,
        name,
        severity,
        title=title.replace("{who}", who(facts, speaker)),
        links=[[line_evidence(facts, event, claim, source=source)]],
        next_steps=next_steps,
        culprits=[culprit(facts, speaker, path=path)],
        notes=notes,
        consequences=consequences(case),
    )


def lost_rank(case: LogCase) -> Failure:
    """The failure of a process that could not speak for itself, with the rank that is left over once the others spoke."""
    index = silent_rank(case.facts)
    if index is None or case.failure.speaker.rank.global_ is not None:
        return case.failure
    speaker = Speaker(tag=case.failure.speaker.tag, pid=case.failure.speaker.pid, rank=Rank(global_=index))
    return Failure(
        kind=case.failure.kind, place=case.failure.place, speaker=speaker, trace=case.failure.trace, event=case.failure.event
    )
