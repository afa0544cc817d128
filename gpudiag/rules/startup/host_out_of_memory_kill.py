"""GPD208: the kernel killed a process of the server because the host or its control group had no memory left."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.model.log import Event, Speaker
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import from_line, line_evidence, raised
from gpudiag.rules.startup.worker_killed_by_signal import death_code, exit_code, victim_of

CODE: Final = "GPD208"
NAME: Final = "host-out-of-memory-kill"

_MEMORY: Final = re.compile(
    r"^MemoryError|DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|OSError: \[Errno "
    r"12\] Cannot allocate memory|std::bad_alloc|unable to mmap \d+ bytes[^\n]*Cannot allocate memory"
)
_STEPS: Final = [
    "dmesg -T | grep -iE 'out of memory|oom-kill|killed process'",
    "free -g; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.events",
    (
        "give the container more memory, or load with fewer copies: fewer ranks "
        "per host, no CPU offload, --load-format that does not stage on the host"
    ),
]


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if case.failure.trace is not None:
        hit = case.match(_MEMORY)
        if hit is not None:
            yield raised(case, CODE, NAME, hit.node, "{who} got no more host memory: " + hit.node.headline[:120], _STEPS)
        return
    if event is None:
        return
    record = event if event.kind == "oom-kill" else _record_for(case, event)
    if record is None:
        return
    died = event if event.kind != "oom-kill" else _death_of(case, record)
    pid = record.fields.get("pid", "")
    speaker = (
        victim_of(case.facts, died)
        if died is not None
        else Speaker(tag=record.fields.get("name", ""), pid=int(pid[:9]) if pid else None)
    )
    size = f" at {int(record.fields['rss_kb'][:15]) / 1048576:.1f} GiB" if "rss_kb" in record.fields else ""
    notes = [line_evidence(case.facts, died, "the server saw it die")] if died is not None else []
    yield from_line(
        case,
        CODE,
        NAME,
        record,
        f"the kernel killed {{who}}{size}: the host has no memory left",
        _STEPS,
        claim="the kernel's record of the kill",
        source="kernel-log",
        speaker=speaker,
        notes=notes,
    )


def _record_for(case: LogCase, event: Event) -> Event | None:
    """The kernel's record of a kill, if this death was by SIGKILL."""
    if death_code(case.facts, event) not in (-9, 137):
        return None
    return next(iter(case.facts.of("oom-kill")), None)


def _death_of(case: LogCase, record: Event) -> Event | None:
    """The server's own line about the process that the kernel killed."""
    pid = record.fields.get("pid")
    deaths = [e for e in case.facts.of("worker-died", "elastic") if exit_code(e) in (-9, 137)]
    return next((e for e in deaths if e.fields.get("pid") == pid), deaths[0] if len(deaths) == 1 else None)


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
