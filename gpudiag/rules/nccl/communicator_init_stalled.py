"""GPD401: a communicator is being set up, and that does not end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import culprit, label
from gpudiag.waits.communicators import End, source
from gpudiag.waits.picture import Picture

IN_PROGRESS: Final = 7
"""ncclInProgress (nccl.h)."""


def evaluate(picture: Picture) -> Iterator[Finding]:
    """On ranks whose communicator said 'in progress' in every look."""
    for group in picture.communicators:
        stalled = [e for e in group.ends if _in_progress(e)]
        if not stalled or not picture.observation.has_change:
            continue
        evidence = [
            Evidence(
                source=source(e.nccl),
                claim=f"communicator {group.name} of rank {e.rank} (pid {e.pid}) is still being initialised",
                excerpt=f"initState {e.now.init_state}, asyncResult {e.now.async_error}",
                at=picture.at,
            )
            for e in stalled
        ]
        still = Evidence(source="two-looks", claim=f"the same in looks {picture.observation.span_s:.1f} s apart", at=picture.at)
        nodes = [picture.index.owner(e.pid) for e in stalled]
        names = ", ".join(label(picture, n) for n in nodes[:8])
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"communicator {group.name} is not ready on {names}: its set-up does not end",
            links=(tuple(evidence), (still,)),
            culprits=tuple(culprit(picture, n) for n in nodes),
            next_steps=(
                "start again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,NET and look for the last line of each rank",
                "check that all ranks reach each other on the interface that NCCL_SOCKET_IFNAME names",
            ),
        )


def _in_progress(end: End) -> bool:
    return end.now.init_state == IN_PROGRESS and end.before is not None and end.before.init_state == IN_PROGRESS


RULE = Rule(code="GPD401", name="communicator-init-stalled", severity="error", evaluate=evaluate, specificity=72)
