"""GPD402: ranks cannot reach each other on the interface that was chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD402"
NAME: Final = "wrong-network-interface"

_PATTERN: Final = re.compile(
    r"connectFullMesh failed|Gloo connectFullMesh|no (?:socket )?interface found|(?:socketStartConnect|"
    r"NET/Socket)[^\n]*(?:No route to host|Connection timed out|unreachable)|"
    r"No route to host|bind[^\n]*[Cc]annot assign requested address"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        "{who} cannot reach the other ranks on the interface that was chosen",
        [
            "ip -br addr; ip route get PEER_ADDRESS",
            "export GLOO_SOCKET_IFNAME=IFACE NCCL_SOCKET_IFNAME=IFACE on every node, with the interface that routes to the peers",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=70, evaluate=_evaluate)
