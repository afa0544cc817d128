"""GPD109 before a start: gpudiag will not be able to read the stacks of the server."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.tracing
    if not isinstance(reading, Ok):
        return unread(reading)
    tracing = reading.value
    scope = tracing.yama_scope
    if tracing.can_trace and scope != 3:
        return passed("CAP_SYS_PTRACE is there" if scope is not None else "CAP_SYS_PTRACE is there, no Yama")
    if not scope:
        return passed("no Yama: processes of the same user can be looked into")
    made = CHECK.finding(
        f"Yama scope {scope} keeps gpudiag from reading the stacks of a running server",
        [
            seen(
                "permissions",
                f"kernel.yama.ptrace_scope is {scope}, uid {tracing.uid}, CAP_SYS_PTRACE {'yes' if tracing.can_trace else 'no'}",
            )
        ],
        (
            "run gpudiag as root (sudo gpudiag attach)"
            if scope != 3
            else "scope 3 stays until the next boot: set kernel.yama.ptrace_scope to 1 or 0 in /etc/sysctl.d and reboot",
            "in a container: docker run --cap-add SYS_PTRACE ...",
            "or sysctl kernel.yama.ptrace_scope=0",
        ),
        subjects=("file:/proc/sys/kernel/yama/ptrace_scope",),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD109",
        name="ptrace-not-permitted",
        severity="warning",
        category="host",
        asks="will gpudiag be allowed to look into the server when it hangs?",
    ),
    evaluate=evaluate,
)
