"""GPD501 before a start: the driver reported a hardware error since boot."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread

HARDWARE: Final = {
    48: "double-bit ECC error",
    63: "row remapping recorded",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP does not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
    143: "GPU initialisation failed",
    **dict.fromkeys(range(144, 150), "NVLink error"),
}
"""NVIDIA's catalogue of Xid errors. Those of applications (13, 31, 43, 45) are not here: they blame a program."""

_GRAVE: Final = frozenset({48, 64, 74, 79, 95, 119, 120, 140, 143, *range(144, 150)})


def evaluate(facts: Facts) -> Answer:
    pci = facts.system.pci
    if isinstance(pci, Ok) and not pci.value:
        return skipped("no NVIDIA GPU on the PCI bus")
    reading = facts.system.kernel_log
    if not isinstance(reading, Ok):
        return unread(reading)
    by_kind: dict[tuple[int, str], list[str]] = {}
    for xid in reading.value.xids:
        if xid.number in HARDWARE:
            by_kind.setdefault((xid.number, xid.bus_id), []).append(xid.line)
    made = (
        CHECK.finding(
            f"Xid {number} on {bus}: {HARDWARE[number]}" + (f" ({len(lines)} times)" if len(lines) > 1 else ""),
            [seen("kernel-log", "reported by the driver since boot", lines[-1])],
            (
                "drain the machine and reset the GPU, or reboot; if it comes again, have the GPU looked at",
                "nvidia-bug-report.sh before that keeps the evidence",
            ),
            subjects=(f"file:/sys/bus/pci/devices/{bus}",),
            severity="error" if number in _GRAVE else "warning",
        )
        for (number, bus), lines in by_kind.items()
    )
    return found(made, passed("no Xid of the hardware since boot (which alone proves nothing)"))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD501",
        name="xid-hardware-error",
        severity="error",
        category="gpu",
        asks="has the driver reported hardware errors since boot?",
    ),
    evaluate=evaluate,
)
