"""GPD114: the port of the server is taken."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread


def evaluate(facts: Facts) -> Answer:
    if not facts.asked.ports:
        return skipped("no engine and no port named")
    reading = facts.system.listeners
    if not isinstance(reading, Ok):
        return unread(reading)
    taken = [one for one in reading.value if one.port in facts.asked.ports]
    made = (
        CHECK.finding(
            f"Port {one.port} is taken by {f'{one.name} (pid {one.pid})' if one.pid else 'a process that is not visible here'}",
            [seen("socket-table", f"somebody listens on {one.address}:{one.port}")],
            (
                f"if that is an old server: gpudiag attach {one.pid}" if one.pid else f"as root: ss -ltnp 'sport = :{one.port}'",
                "or serve on another port: --port N",
            ),
            culprits=(Culprit(node=f"pid:{one.pid}" if one.pid else "outside", pid=one.pid),),
        )
        for one in taken
    )
    return found(made, passed(f"free: {', '.join(map(str, facts.asked.ports))}"))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD114", name="port-in-use", severity="error", category="environment", asks="is the server's port free?"
    ),
    evaluate=evaluate,
)
