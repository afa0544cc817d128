"""GPD505: a GPU runs slower than it could because it is too hot or its power supply says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule
from gpudiag.rules.gpu.health import health_finding
from gpudiag.rules.nccl.ranks import driver_says, used
from gpudiag.waits.picture import Picture

BAD: Final = ("hw-slowdown", "hw-thermal-slowdown", "hw-power-brake", "sw-thermal-slowdown")
"""A software power cap is not among them: a GPU under full load reaches its limit."""


def evaluate(picture: Picture) -> Iterator[Finding]:
    for gpu, member in used(picture):
        reasons = [r for r in gpu.event_reasons or () if r in BAD]
        if not reasons:
            continue
        clock = f"{gpu.sm_clock_mhz} of {gpu.sm_clock_max_mhz} MHz, {gpu.temperature_c} C, {gpu.power_w or 0:.0f} W"
        says = driver_says(picture, gpu, f"clocks are held down: {', '.join(reasons)}", clock)
        steps = ("look at fans, air flow and power cables", "`nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`")
        yield health_finding(
            picture, RULE, gpu, member, what=f"is throttled: {', '.join(reasons)}", evidence=(says,), steps=steps
        )


RULE = Rule(code="GPD505", name="clocks-throttled", severity="warning", evaluate=evaluate, specificity=6)
