"""GPD308: a rank never joined the process group."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD308"
NAME: Final = "rendezvous-incomplete"

_PATTERN: Final = re.compile(
    r"(?:DistStoreError: )?Timed out after \d+ seconds waiting for clients(?:\. (?P<joined>\d+)/(?P<all>\d+) clients joined)?|"
    r"DistStoreError|RendezvousTimeoutError|The client socket has timed out after|"
    r"failed to connect to[^\n]*TCPStore|wait timeout after \d+ms, keys|connect\(\)? timed out[^\n]*(?:store|master)"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    joined = f" ({hit.get('joined')} of {hit.get('all')} joined)" if hit.get("joined") else ""
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"not every rank joined the process group{joined}; {{who}} gave up waiting",
        [
            "look at the log of the rank or node that is missing: it failed first, or it uses another address or world size",
            "check the master address and port from every node: nc -vz HOST PORT",
            "firewall, several network interfaces: set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=75, evaluate=_evaluate)
