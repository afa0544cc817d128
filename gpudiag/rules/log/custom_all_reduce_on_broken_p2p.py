"""GPD407: the engine's own all-reduce kernel failed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import from_line, raised

CODE: Final = "GPD407"
NAME: Final = "custom-all-reduce-on-broken-p2p"

_PATTERN: Final = re.compile(
    r"custom_all_reduce\.cuh:(?P<line>\d+)|custom_ar|init_custom_ar|custom all-?reduce[^\n]*(?:failed|invalid)"
)
_STEPS: Final = [
    "start with --disable-custom-all-reduce",
    (
        "test the path between the GPUs: a peer-to-peer copy that checks its "
        "data (cuda-samples p2pBandwidthLatencyTest, or gpudiag doctor --gpu)"
    ),
    "nvidia-smi topo -m, and the IOMMU and ACS settings",
]


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is not None and event.kind == "custom-all-reduce":
        yield from_line(
            case,
            CODE,
            NAME,
            event,
            f"{{who}}: the custom all-reduce kernel failed ({event.fields.get('error', 'error')})",
            _STEPS,
            claim="the kernel's own check",
        )
        return
    hit = case.match(_PATTERN)
    if hit is not None and "CUDA" in hit.node.message:
        yield raised(
            case,
            CODE,
            NAME,
            hit.node,
            "{who}: the custom all-reduce failed: " + hit.node.message.partition("\n")[0][:120],
            _STEPS,
        )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
