"""GPD128: a Blackwell GPU needs the open kernel module."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread, values
from gpudiag.rules.preflight.words import version
from gpudiag.rules.system.gpus import gpu_set

_BLACKWELL: Final = 10


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    newest = max(values(g.capability for g in gpus.gpus), key=version, default="")
    if version(newest)[:1] < (_BLACKWELL,):
        return skipped("no Blackwell GPU")
    module = facts.system.kernel_module
    if not isinstance(module, Ok):
        return unread(module)
    if module.value.open:
        return passed("the open module is loaded")
    made = CHECK.finding(
        f"The closed kernel module is loaded; GPUs of compute capability {newest} are supported by the open one",
        [seen("sysfs", "/proc/driver/nvidia/version does not say 'Open Kernel Module'", module.value.text)],
        ("install the open flavour of the same driver (nvidia-open, nvidia-driver-NNN-open) and reboot",),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD128",
        name="closed-kernel-module-on-blackwell",
        severity="warning",
        category="gpu",
        asks="is the open kernel module loaded where the GPU needs it?",
    ),
    evaluate=evaluate,
)
