"""GPD140: the container's seccomp profile refuses the calls that place memory on NUMA nodes."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.numa_calls
    if not isinstance(reading, Ok):
        return unread(reading)
    if reading.value:
        return passed("get_mempolicy is permitted")
    made = CHECK.finding(
        "get_mempolicy is refused here: NCCL's host buffers and the engine's NUMA binding fail or fall back",
        [seen("permissions", "get_mempolicy returned EPERM")],
        ("docker run --cap-add SYS_NICE ...", "or NCCL_CUMEM_HOST_ENABLE=0"),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD140",
        name="numa-calls-blocked",
        severity="info",
        category="host",
        asks="may the server place memory on NUMA nodes?",
    ),
    evaluate=evaluate,
)
