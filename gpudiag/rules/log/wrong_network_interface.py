"""GPD402: ranks cannot reach each other on the interface that was chosen."""

from __future__ import annotations

from typing import Final

from gpudiag.rules.log.case import LogRule
from gpudiag.rules.log.matching import matching

RULE: Final[LogRule] = matching(
    "GPD402",
    "wrong-network-interface",
    specificity=70,
    pattern=(
        r"connectFullMesh failed|Gloo connectFullMesh|no (?:socket )?interface found|(?:socketStartConnect|"
        r"NET/Socket)[^\n]*(?:No route to host|Connection timed out|unreachable)|"
        r"No route to host|bind[^\n]*[Cc]annot assign requested address"
    ),
    title="{who} cannot reach the other ranks on the interface that was chosen",
    next_steps=(
        "ip -br addr; ip route get PEER_ADDRESS",
        "export GLOO_SOCKET_IFNAME=IFACE NCCL_SOCKET_IFNAME=IFACE on every node, with the interface that routes to the peers",
    ),
)
