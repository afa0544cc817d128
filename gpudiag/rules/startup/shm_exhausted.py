"""GPD209: /dev/shm is full or too small."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import from_line, line_evidence, raised
from gpudiag.rules.log.words import said

CODE: Final = "GPD209"
NAME: Final = "shm-exhausted"
SHM: Final = "/dev/shm"  # noqa: S108, the name of the thing that is full

_EXCEPTION: Final = re.compile(
    r"Insufficient space in /dev/shm[^\n]*|No space left on device[^\n]*/dev/shm[^\n]*|/dev/shm[^\n]*No "
    r"space left on device|unable to (?:write to file|open shared memory object) </torch_\w+>[^\n]*|"
    r"unable to resize file </torch\w*>[^\n]*|insufficient shared memory \(shm\)[^\n]*|DataLoader worker[^\n]*Bus error"
)
_WARNING: Final = re.compile(
    r"(?:/dev/shm/nccl-\S*|shared memory segment).{0,160}(?:No space left on device|"
    r"Error: -?28)|No space left on device.{0,40}/dev/shm|failed to extend /dev/shm"
)
_STEPS: Final = [
    "df -h /dev/shm; ls -lh /dev/shm | head",
    "docker run --shm-size=16g (or --ipc=host); in Kubernetes an emptyDir with medium: Memory mounted at /dev/shm",
    "rm segments that a killed server left behind (psm_*, sgl_shm_*, nccl-*, vllm_dist_*) when no server runs",
]


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_EXCEPTION)
    warning = next((e for e in case.facts.of("nccl-warn") if _WARNING.search(e.text)), None)
    if hit is not None:
        yield raised(
            case, CODE, NAME, hit.node, "{who}: /dev/shm is too small: " + said(hit.found.group(0), 140), _STEPS, path=SHM
        )
        return
    event = case.failure.event
    if warning is not None and (
        (case.failure.trace is not None and "NCCL" in case.failure.trace.message)
        or (event is not None and event.kind == "nccl-warn")
    ):
        yield from_line(
            case,
            CODE,
            NAME,
            warning,
            "NCCL found no room in /dev/shm: it is full or too small",
            _STEPS,
            claim="NCCL's warning",
            path=SHM,
            speaker=case.failure.speaker,
        )
        return
    died = event is not None and event.kind in ("worker-died", "elastic") and event.fields.get("code") in ("-7", "135")
    full = next((e for e in case.facts.events if "No space left on device" in e.text and SHM in e.text), None)
    if event is not None and died and full is not None:
        yield from_line(
            case,
            CODE,
            NAME,
            full,
            "a process died of SIGBUS and /dev/shm is full",
            _STEPS,
            claim="no room in /dev/shm",
            path=SHM,
            notes=[line_evidence(case.facts, event, "SIGBUS", source="exit-status")],
        )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=85, evaluate=_evaluate)
