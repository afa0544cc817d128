"""GPD118: a resource limit is too low for a server with many workers and connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, Limit
from gpudiag.model.finding import Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.preflight.words import plural, size

_FILES: Final = 65_535
"""What both engines raise the soft limit to when they start, as far as the hard one allows."""
_STACK: Final = 64 << 20
"""What SGLang raises the stack to (srt/utils, set_ulimit)."""
_PIDS: Final = 4096


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.limits
    if not isinstance(reading, Ok):
        return unread(reading)
    limits = {limit.name: limit for limit in reading.value}
    fabric = isinstance(facts.system.infiniband, Ok) and bool(facts.system.infiniband.value)
    made = [*_files(limits), *_stack(limits), *(_locked(limits) if fabric else ()), *_pids(facts)]
    return found(made, passed(f"{plural(len(limits), 'limit')} looked at"))


def _below(limit: Limit | None, least: int) -> int | None:
    """The hard limit if it is lower than `least`: the soft one does not matter, engines raise it."""
    return limit.hard if limit is not None and limit.hard is not None and limit.hard < least else None


def _files(limits: dict[str, Limit]) -> Iterator[Finding]:
    hard = _below(limits.get("Max open files"), _FILES)
    if hard is not None:
        yield CHECK.finding(
            f"At most {hard} open files are allowed; engines want {_FILES}",
            [seen("permissions", f"/proc/self/limits: Max open files, hard limit {hard}")],
            ("docker run --ulimit nofile=1048576:1048576, LimitNOFILE= in a systemd unit, or /etc/security/limits.conf",),
        )


def _stack(limits: dict[str, Limit]) -> Iterator[Finding]:
    hard = _below(limits.get("Max stack size"), _STACK)
    if hard is not None:
        yield CHECK.finding(
            f"The stack may grow to {size(hard)} only; SGLang wants {size(_STACK)}",
            [seen("permissions", f"/proc/self/limits: Max stack size, hard limit {hard} bytes")],
            ("docker run --ulimit stack=67108864, or LimitSTACK= in a systemd unit",),
        )


def _locked(limits: dict[str, Limit]) -> Iterator[Finding]:
    limit = limits.get("Max locked memory")
    if limit is not None and limit.hard is not None:
        yield CHECK.finding(
            f"Only {size(limit.hard)} may be locked in memory; RDMA needs it unlimited",
            [
                seen(
                    "permissions",
                    f"/proc/self/limits: Max locked memory, hard limit {limit.hard} bytes, with InfiniBand devices present",
                )
            ],
            ("docker run --ulimit memlock=-1, LimitMEMLOCK=infinity in a systemd unit, or /etc/security/limits.conf",),
        )


def _pids(facts: Facts) -> Iterator[Finding]:
    group = facts.system.cgroup
    if isinstance(group, Ok) and group.value.pids is not None and group.value.pids < _PIDS:
        yield CHECK.finding(
            f"The container may have {group.value.pids} processes and threads; a server with several GPUs has hundreds a worker",
            [seen("permissions", f"pids.max of {group.value.path} is {group.value.pids}")],
            ("docker run --pids-limit -1, or a larger pids limit in Kubernetes",),
        )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD118",
        name="ulimit-too-low",
        severity="warning",
        category="host",
        asks="do the resource limits allow a server's files, threads and locked memory?",
    ),
    evaluate=evaluate,
)
