"""GPD312: a thread keeps the interpreter lock while it sleeps in a system call."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import at_rest, consequences, culprit, label, standing, terminals, waited_for, waiting
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end, moved in at_rest(picture, terminals(picture)):
        if not any(e.wait.kind == "gil" for e in picture.edges_to(end.node)):
            continue
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, end.node)}: thread {end.tid} keeps the interpreter lock; {waiting(picture, end.cause)}",
            links=(*waited_for(picture, end.cause), moved),
            culprits=(culprit(picture, end.node),),
            consequences=consequences(picture, end.cause),
            notes=standing(picture, end.node),
            next_steps=(
                (
                    "the native function called on that line must release the GIL"
                    " (ctypes.CDLL instead of PyDLL, Py_BEGIN_ALLOW_THREADS)"
                ),
                (
                    f"see the native frames: `gpudiag attach {picture.server.root_pid} --once --native`"
                    " (stops each process for a moment)"
                ),
            ),
        )


RULE = Rule(code="GPD312", name="gil-held", severity="error", evaluate=evaluate, specificity=82)
