"""From LogFacts to the report: the first real cause, what followed from it, or what is missing to name it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpudiag.model.finding import Consequence, Finding
from gpudiag.model.log import LogFacts
from gpudiag.model.report import Cost, NotRead, Report, ReportedFinding, ServerState, Target, Verdict
from gpudiag.rules.log.blame import failures
from gpudiag.rules.log.case import Failure, LogCase
from gpudiag.rules.log.findings import global_rank, who
from gpudiag.rules.log.model_served_by_fallback import CODE as FALLBACK
from gpudiag.rules.log.model_served_by_fallback import own_import
from gpudiag.rules.log.progress import behind, furthest, served
from gpudiag.rules.log.words import said
from gpudiag.rules.log_registry import LOG_RULES
from gpudiag.rules.startup import import_syntax_error
from gpudiag.rules.startup.worker_killed_by_signal import victim_of

_MOST_FINDINGS: Final = 8
_MOST_JUDGED: Final = 32
_DUMP_REQUEST: Final = "preparing to dump debug info"
_FOLLOWS: Final = {"GPD226": ("GPD203", "GPD204")}
"""Operators are missing because the library that registers them could not be loaded."""
_HANGS: Final = ("GPD3", "GPD401", "GPD408", "GPD227", "GPD228")


def explain_log(
    facts: LogFacts,
    *,
    command: str = "explain",
    version: str,
    host: str = "",
    generated_at: str | None = None,
    took_s: float = 0.0,
) -> Report:
    """Judge one set of logs.

    `version` is gpudiag's own, `host` the machine that judges (not the one in the log), `took_s` the seconds spent so far.
    """
    found = judge(facts)
    verdict = _verdict(facts, found)
    return Report(
        gpudiag=version,
        host=host,
        generated_at=generated_at or datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        target=_target(facts, found),
        verdict=verdict,
        findings=tuple(ReportedFinding.of(f) for f in found),
        waits=(),
        not_read=_not_read(facts),
        cost=Cost(wall_s=took_s, stopped_s=0.0),
    )


def judge(facts: LogFacts) -> tuple[Finding, ...]:
    """The findings, the cause first, at most one of each kind.

    What comes after the cause is listed only if it may stand by itself: an exception of a process that is no victim, or
    the kernel's word. Deaths and timeouts after it are consequences.
    """
    out: dict[str, Finding] = {}
    judged: set[str] = set()
    for failure in failures(facts)[:_MOST_JUDGED]:
        told = failure.trace.headline if failure.trace is not None else str(failure.place)
        if told in judged:
            continue
        judged.add(told)
        if out and failure.kind != "exception" and (failure.event is None or failure.event.kind not in ("xid", "oom-kill")):
            continue
        case = LogCase(facts=facts, failure=failure)
        best = _best(case)
        cause = next((code for code in _FOLLOWS.get(best.code, ()) if code in out), None) if best is not None else None
        if best is not None and cause is not None:
            also = tuple(Consequence(node=node, title=best.title) for node in best.subjects[:1])
            out[cause] = msgspec.structs.replace(out[cause], consequences=(*also, *out[cause].consequences))
        elif best is not None:
            out.setdefault(best.code, best)
            out |= {f.code: f for f in _behind_fallback(facts, best) if f.code not in out}
        if len(out) >= _MOST_FINDINGS:
            break
    return tuple(out.values())


def _best(case: LogCase) -> Finding | None:
    """The most specific finding for one failure. Rules are sorted, so the first that speaks is the best."""
    for rule in LOG_RULES:
        for finding in rule.evaluate(case):
            return finding
    return None


def _behind_fallback(facts: LogFacts, found: Finding) -> Iterator[Finding]:
    """Why a generic class serves, where the model's own file does not parse: no failure of the server, who went on."""
    own = own_import(facts) if found.code == FALLBACK else None
    if own is not None:
        failure = Failure(kind="event", place=own.place, speaker=own.speaker, event=own)
        yield from import_syntax_error.RULE.evaluate(LogCase(facts=facts, failure=failure))


def _verdict(facts: LogFacts, found: Sequence[Finding]) -> Verdict:
    if found:
        main = found[0]
        return Verdict(
            status="finding",
            code=main.code,
            name=main.name,
            severity=main.severity,
            title=main.title,
            confidence=main.confidence,
            next_step=main.next_steps[0] if main.next_steps else "",
            culprits=main.culprits,
        )
    candidates = _telling(failures(facts))
    if candidates:
        return _insufficient(_answered(facts, candidates[0]), _collect(facts))
    if served(facts):
        how = "and was shut down in order" if facts.ending == "stopped" else "and no failure is in the log"
        return Verdict(
            status="healthy",
            code=None,
            name=None,
            severity=None,
            title=f"the server came up {how}",
            confidence=None,
            next_step=""
            if facts.ending == "stopped"
            else "if it hangs or is gone now, the log cannot tell: gpudiag attach PID, dmesg -T, and its exit status",
        )
    return _insufficient(_stopped_at(facts), _collect(facts))


def _telling(candidates: Sequence[Failure]) -> list[Failure]:
    """The candidates that show by themselves that something went wrong; a warning or a fallback class does not."""
    return [c for c in candidates if c.event is None or c.event.kind not in ("model-class", "nccl-warn", "library", "error-line")]


def _insufficient(title: str, next_step: str) -> Verdict:
    return Verdict(status="insufficient", code=None, name=None, severity=None, title=title, confidence=None, next_step=next_step)


def _answered(facts: LogFacts, failure: Failure) -> str:
    """Only victims spoke: say what they say, and how far the server got."""
    what = (
        failure.trace.victim
        if failure.trace is not None
        else said(failure.event.fields.get("what", failure.event.text), 100)
        if failure.event is not None
        else ""
    )
    if failure.event is not None and _DUMP_REQUEST in failure.event.text:
        return f"{_recorder(facts)}; {_stopped_at(facts)}"
    if failure.event is not None and failure.event.kind in ("worker-died", "elastic"):
        name = who(facts, victim_of(facts, failure.event))
        return f"{name} ended with exit code {failure.event.fields.get('code', 'unknown')} and left no reason in these logs"
    if failure.kind == "hang" and failure.event is None and not facts.flight and not facts.ras:
        return _stopped_at(facts)
    if failure.kind in ("hang", "victim") and failure.trace is None:
        return f"something hangs, and this log only holds the complaint about it ({what or 'a watchdog'}); {_stopped_at(facts)}"
    return (
        f"{who(facts, failure.speaker)} only says that {what or 'another process failed'}; "
        f"the first failure is not in this log; {_stopped_at(facts)}"
    )


def _recorder(facts: LogFacts) -> str:
    """What a dump of torch's flight recorder came to that was asked for."""
    if facts.flight:
        return f"the flight recorder of {len(facts.flight)} ranks holds no operation that began and did not end"
    return "torch was asked to dump its flight recorder, and no dump is among these files"


def _stopped_at(facts: LogFacts) -> str:
    last = furthest(facts)
    if last is None:
        return "the log names no step of a known server" if facts.sources else "nothing could be read"
    late = behind(facts)
    slow = "; behind the others: " + ", ".join(f"{who(facts, m.speaker)} at '{m.name}'" for m in late[:8]) if late else ""
    return f"the last step in the log is '{last.name}' (line {last.place.number}){slow}"


def _collect(facts: LogFacts) -> str:
    """What would decide it."""
    if any(_DUMP_REQUEST in e.text for e in facts.of("collective-status")):
        if facts.flight:
            return "gpudiag attach PID while it hangs: replayed CUDA graphs, Send and Recv are in no flight recorder"
        return (
            "give the dumps too (TORCH_NCCL_DEBUG_INFO_TEMP_FILE, by default /tmp/nccl_trace_rank_N); a recorder runs only in "
            "a server started with TORCH_NCCL_TRACE_BUFFER_SIZE=2000. While it hangs: gpudiag attach PID"
        )
    if facts.milestones or failures(facts):
        return (
            "while it hangs: gpudiag attach PID; after a death: dmesg -T, the exit "
            "status of each process, and the logs of all ranks and nodes, given together"
        )
    return "give the whole log of the server, from its first line on, with standard error in it (2>&1)"


def _target(facts: LogFacts, found: Sequence[Finding]) -> Target | None:
    if facts.engine == "unknown" and not facts.milestones and not found:
        return None
    return Target(
        engine=facts.engine, version=facts.version, root_pid=facts.root_pid or 0, state=_state(facts, found), workers=()
    )


def _state(facts: LogFacts, found: Sequence[Finding]) -> ServerState:
    if found:
        if found[0].code == "GPD706":
            return "serving"
        if found[0].code.startswith(_HANGS) and found[0].code != "GPD304":
            return "hung"
        return "crashed"
    candidates = _telling(failures(facts))
    if candidates and candidates[0].kind == "event":
        return "crashed"
    if candidates and candidates[0].kind == "hang" and candidates[0].event is None and not facts.flight and not facts.ras:
        return "starting" if facts.milestones else "unknown"
    if candidates and candidates[0].event is not None and _DUMP_REQUEST in candidates[0].event.text:
        # Whoever asked for the dump suspected a hang; the log knows nothing of one.
        return "unknown"
    if candidates:
        return "hung" if candidates[0].trace is None else "crashed"
    if not facts.milestones:
        return "unknown"
    return "serving" if served(facts) else "starting"


def _not_read(facts: LogFacts) -> tuple[NotRead, ...]:
    out = [NotRead(source=name, reason=reason, help=help) for name, reason, help in facts.unread]
    out.extend(
        NotRead(source=s.name, reason=note, help="")
        for s in facts.sources
        for note in s.notes
        if note.startswith(("ends early", "holds", "lines with")) or "cut" in note
    )
    if facts.dropped:
        out.append(NotRead(source="log", reason=f"{facts.dropped} further messages of the same kinds were only counted", help=""))
    return tuple(out)


__all__ = ["explain_log", "global_rank", "judge"]
