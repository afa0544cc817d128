"""GPD501: the driver reports a hardware fault of a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import from_line

CODE: Final = "GPD501"
NAME: Final = "xid-hardware-error"

MEANING: Final = {
    48: "an uncorrectable memory error",
    54: "missing auxiliary power",
    61: "an internal micro-controller fault",
    62: "an internal micro-controller halt",
    63: "a memory row was retired or remapped",
    64: "a memory row could not be retired or remapped",
    79: "the GPU fell off the bus",
    92: "a high rate of single-bit errors",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor failed",
    136: "a link training failure",
    140: "an unrecovered memory error",
    143: "a GPU initialisation failure",
    149: "an NVLink error",
    154: "the GPU asks for a recovery action",
}
"""From NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors)."""


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is None or event.kind != "xid":
        return
    number = int(event.fields["xid"][:6])
    device = event.fields.get("device", "")
    same = [e for e in case.facts.of("xid") if e.fields.get("device") == device]
    yield from_line(
        case,
        CODE,
        NAME,
        event,
        f"GPU {device} reports Xid {number}: {MEANING.get(number, 'a hardware fault')}"
        + (f" ({len(same)} records)" if len(same) > 1 else ""),
        [
            "nvidia-smi -q -d ECC,ROW_REMAPPER,PERFORMANCE",
            "take this GPU out of service; reset it (nvidia-smi -r) or reboot, and have it replaced if the Xid comes back",
        ],
        claim="the driver's record",
        source="kernel-log",
        path=device,
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=85, evaluate=_evaluate)
