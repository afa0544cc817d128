"""GPD404: the driver reports a broken NVLink."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import from_line

CODE: Final = "GPD404"
NAME: Final = "nvlink-down"


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is None or event.kind != "xid" or event.fields.get("xid") not in ("74", "155"):
        return
    yield from_line(
        case,
        CODE,
        NAME,
        event,
        f"the NVLink of GPU {event.fields.get('device')} failed (Xid {event.fields['xid']})",
        [
            "nvidia-smi nvlink --status; nvidia-smi nvlink -e",
            "nvidia-smi topo -m",
            "reset the GPU or reboot; if it comes back, have the GPU, baseboard or NVLink bridge replaced",
        ],
        claim="the driver's Xid record",
        source="kernel-log",
        path=event.fields.get("device"),
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=90, evaluate=_evaluate)
