"""GPD102: the driver does not serve the CUDA version that torch was built for, or not this GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, GpuSet
from gpudiag.model.finding import Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, values
from gpudiag.rules.preflight.words import version
from gpudiag.rules.system.gpus import gpu_set

_OLDEST: Final = {11: 450, 12: 525, 13: 580}
"""Oldest driver branch of each CUDA major: NVIDIA's table of minor-version compatibility."""

_BLACKWELL_DRIVER: Final = 570
"""First driver branch that knows compute capability 12.0."""


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    install = facts.install
    environment = install.value.environment if isinstance(install, Ok) else None
    torch_cuda = environment.value.torch_cuda if isinstance(environment, Ok) else None
    made = [*_for_gpu(gpus), *(_for_runtime(gpus, torch_cuda) if torch_cuda else ())]
    known = f"; torch is built for CUDA {torch_cuda}" if torch_cuda else "; no torch for CUDA to compare with"
    return found(made, passed(f"driver {gpus.driver.version} serves CUDA {gpus.driver.cuda}{known}"))


def _for_runtime(gpus: GpuSet, torch_cuda: str) -> Iterator[Finding]:
    wanted, served = version(torch_cuda), version(gpus.driver.cuda)
    if not wanted or not served or wanted[0] <= served[0]:
        return
    branch = _OLDEST.get(wanted[0])
    yield CHECK.finding(
        f"Driver {gpus.driver.version} serves CUDA {gpus.driver.cuda}, torch needs {torch_cuda}",
        [
            seen("nvml", f"driver {gpus.driver.version} serves CUDA up to {gpus.driver.cuda}"),
            seen("package-text", f"torch/version.py names CUDA {torch_cuda}"),
        ],
        (
            f"update the driver to branch {branch} or newer" if branch else "update the driver",
            f"or install builds of torch and the engine for CUDA {served[0]}",
        ),
    )


def _for_gpu(gpus: GpuSet) -> Iterator[Finding]:
    newest = max(values(g.capability for g in gpus.gpus), key=version, default="")
    if version(newest)[:1] != (12,) or version(gpus.driver.version)[:1] >= (_BLACKWELL_DRIVER,):
        return
    yield CHECK.finding(
        f"Driver {gpus.driver.version} does not know GPUs of compute capability {newest}",
        [seen("nvml", f"driver {gpus.driver.version}, compute capability {newest}")],
        (f"update the driver to branch {_BLACKWELL_DRIVER} or newer",),
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD102",
        name="driver-too-old-for-runtime",
        severity="error",
        category="gpu",
        asks="does the driver serve the CUDA version that torch was built for?",
    ),
    evaluate=evaluate,
)
