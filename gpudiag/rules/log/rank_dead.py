"""GPD304: a rank is gone, and only those that lost it say so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.log import Speaker
from gpudiag.model.server import Rank
from gpudiag.rules.base import finding
from gpudiag.rules.log.blame import silent_rank
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import consequences, culprit, line_evidence, traceback_evidence
from gpudiag.rules.startup.worker_killed_by_signal import death_code

CODE: Final = "GPD304"
NAME: Final = "rank-dead"

_LOST: Final = re.compile(
    r"[Cc]onnection (?:closed|reset) by peer|Broken pipe|Connection was "
    r"likely closed|is dead\. Please check|remote side|Connection refused"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    trace, event = case.failure.trace, case.failure.event
    if case.failure.kind != "victim" and not (
        event is not None and event.kind == "worker-died" and "rank" in event.fields and death_code(case.facts, event) is None
    ):
        return
    facts = case.facts
    lost = next((n for n in trace.chain() if _LOST.search(n.message)), None) if trace is not None else None
    named = int(event.fields["rank"][:6]) if event is not None and event.fields.get("rank", "").isdigit() else None
    if lost is None and named is None:
        return
    index = named if named is not None else silent_rank(facts)
    speaker = Speaker(rank=Rank(global_=index)) if index is not None else Speaker()
    pid = next(
        (m.speaker.pid for m in facts.milestones if index is not None and m.speaker.rank.global_ == index and m.speaker.pid), None
    )
    speaker = Speaker(tag=speaker.tag, pid=pid, rank=speaker.rank)
    if lost is not None:
        told = traceback_evidence(facts, lost)
    elif event is not None:
        told = line_evidence(facts, event, "the notice")
    else:
        return
    links = [[Evidence(source="log-line", claim=told.claim, excerpt=told.excerpt)]]
    if index is not None and named is None:
        links.append(
            [Evidence(source="elimination", claim=f"every other rank complained; rank {index} is the one that fell silent")]
        )
    who = f"rank {index}" if index is not None else "a rank that the log does not name"
    yield finding(
        CODE,
        NAME,
        "error",
        title=f"{who} is gone without a word; the others only lost their connection to it",
        links=links,
        next_steps=[
            "dmesg -T | grep -iE 'out of memory|killed process|segfault|xid'",
            "cat /sys/fs/cgroup/memory.events",
            "the exit status of that process, from whoever started the server (container runtime, systemd, batch system)",
        ],
        culprits=[culprit(facts, speaker)],
        consequences=consequences(case),
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=60, evaluate=_evaluate)
