"""GPD501: the kernel log has a hardware error of a GPU that a rank uses, from after the server's start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member
from gpudiag.rules.base import Rule
from gpudiag.rules.gpu.health import health_finding
from gpudiag.rules.nccl.ranks import used
from gpudiag.waits.picture import Picture

HARDWARE: Final = frozenset(
    {46, 48, 54, 56, 57, 58, 62, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 121, 123, 140, 143, 145, 149, 154}
)
"""NVIDIA's Xid catalogue (driver 580): errors of memory, bus, link and system processor. 13, 31, 43 and 45 come from programs."""


def evaluate(picture: Picture) -> Iterator[Finding]:
    reading = picture.observation.last.xids
    if not isinstance(reading, Ok):
        return
    for gpu, member in used(picture):
        since_s = _started_s(picture, member)
        events = [e for e in reading.value if e.number in HARDWARE and e.pci == gpu.pci and (e.at_s is None or e.at_s >= since_s)]
        if not events:
            continue
        evidence = [
            Evidence(
                source="kernel-log", claim=f"Xid {e.number} on {e.pci}, {_ago(picture, e.at_s)}", excerpt=e.text, at=picture.at
            )
            for e in events[-4:]
        ]
        numbers = ", ".join(dict.fromkeys(str(e.number) for e in events))
        steps = ("take the GPU out of service, reset it or reboot; have it replaced if it comes back", "`dmesg -T | grep -i xid`")
        yield health_finding(
            picture, RULE, gpu, member, what=f"reported a hardware error (Xid {numbers})", evidence=evidence, steps=steps
        )


def _started_s(picture: Picture, member: Member) -> float:
    process = picture.index.by_pid.get(member.pid)
    ticks = picture.observation.last.host.clock_ticks
    return process.start_ticks / ticks if process is not None and ticks else 0.0


def _ago(picture: Picture, at_s: float | None) -> str:
    return f"{max(0.0, picture.observation.last.monotonic_s - at_s):.0f} s ago" if at_s is not None else "time unknown"


RULE = Rule(code="GPD501", name="xid-hardware-error", severity="error", evaluate=evaluate, specificity=97)
