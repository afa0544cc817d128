"""GPD508: a call to the NVIDIA driver did not come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.model.reading import Failed
from gpudiag.rules.base import Rule, finding
from gpudiag.waits.picture import Picture

DEADLINE: Final = "deadline:"
"""How a reading begins that was given up."""


def evaluate(picture: Picture) -> Iterator[Finding]:
    reading = picture.observation.last.gpus
    if not isinstance(reading, Failed) or not reading.error.startswith(DEADLINE):
        return
    said = reading.error.removeprefix(DEADLINE).strip()
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title="the NVIDIA driver does not answer: a call to it did not come back",
        links=((Evidence(source="driver", claim=said, at=picture.at),),),
        culprits=(Culprit(node="gpu:driver"),),
        next_steps=(
            "look for the reason: `dmesg -T | grep -iE 'xid|nvrm|hung task'`",
            "a stuck driver needs a reboot; save the logs before: `sudo nvidia-bug-report.sh` (takes minutes)",
        ),
    )


RULE = Rule(code="GPD508", name="nvml-call-hangs", severity="error", evaluate=evaluate, specificity=90)
