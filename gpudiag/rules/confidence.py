"""How sure a finding may be, computed from what it rests on.

A finding is a chain of links. Each link is one statement that must hold, with the evidence for it. A link is as strong
as its strongest evidence, the chain as its weakest link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpudiag.model.finding import CONFIDENCE_ORDER, Confidence, Evidence

STRENGTH: Final[dict[str, Confidence]] = {
    # What the kernel or the interpreter states outright at one instant.
    "process-state": "proven",
    "process-table": "proven",
    "exit-status": "proven",
    "python-stack": "proven",
    "open-files": "proven",
    "file-system": "proven",
    "file-locks": "proven",
    "socket-table": "proven",
    "pipe-ends": "proven",
    # Counters of the NCCL library in the memory of a rank; the driver about its devices; a dump of the GPU.
    "nccl-memory": "proven",
    "driver": "proven",
    "device-dump": "proven",
    "lock-address": "proven",
    "lock-owner": "proven",
    "system-call": "proven",
    "permissions": "proven",
    "traceback": "proven",
    "kernel-log": "proven",
    # What the driver, the bus, a file's own header or the target's own interpreter state outright.
    "sysfs": "proven",
    "nvml": "proven",
    "library-image": "proven",
    "package-record": "proven",
    "package-metadata": "proven",
    "package-text": "proven",
    "interpreter": "proven",
    "compiler": "proven",
    "import": "proven",
    "config-file": "proven",
    "checkpoint": "proven",
    "gpu-test": "proven",
    # What a class is by its source: what runs may still replace it.
    "class-definition": "strong",
    # What others have reported of the same versions.
    "known-report": "weak",
    # What was seen to stay or to change over several looks.
    "long-look": "strong",
    "one-look": "strong",
    "two-looks": "weak",
    "open-files-here": "strong",
    "cpu-time": "strong",
    "token-counts": "strong",
    "io-counters": "strong",
    # What somebody says, and may say wrongly.
    "process-title": "strong",
    "environment": "strong",
    "log-line": "strong",
    # What torch's watchdog, its flight recorder and NCCL's RAS count; they count launches, not what was launched outside them.
    "flight-recorder": "strong",
    "nccl-ras": "strong",
    "nccl-memory-unverified": "strong",
    # Utilisation and activity: a kernel is resident or is not, but not which and why.
    "gpu-counters": "strong",
    "collective-watchdog": "strong",
    # What an engine counts of its own drafts; the time of rounds as a client sees it, with nobody else or with others served.
    "speculation-counts": "proven",
    "timing": "strong",
    "timing-under-load": "weak",
    # A replay: the fate of every draft of every round, reproduced; how many were accepted, reproduced; only something alike.
    "draft-fates": "proven",
    "draft-counts": "strong",
    "draft-resemblance": "weak",
    # What is left after the rest was ruled out, and what is always done so.
    "elimination": "strong",
    "convention": "strong",
    # What only reads alike, and what was not seen.
    "lock-text": "weak",
    "source-text": "weak",
    "wait-channel": "weak",
    "absence": "weak",
    # What such numbers usually come from, and numbers that a person gave.
    "signature": "weak",
    "given": "weak",
}
"""The most that one piece of evidence of this source can support."""

Link = Sequence[Evidence]


def chain(links: Iterable[Link]) -> Confidence:
    """The confidence that a chain of links supports. A link without evidence, or no link at all, is an error of the rule."""
    strengths = []
    for link in links:
        if not link:
            raise ValueError("a link without evidence supports nothing")
        strengths.append(max((STRENGTH[e.source] for e in link), key=CONFIDENCE_ORDER.__getitem__))
    if not strengths:
        raise ValueError("a finding needs at least one link")
    return min(strengths, key=CONFIDENCE_ORDER.__getitem__)
