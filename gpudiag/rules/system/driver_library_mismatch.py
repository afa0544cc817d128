"""GPD101: the NVIDIA libraries and the loaded kernel module are of different versions."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread

_STEPS: Final = (
    "reboot, or with no process on the GPUs: rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia",
    "in a container: the driver of the host was updated under it; start the container again",
)


def evaluate(facts: Facts) -> Answer:
    module, gpus = facts.system.kernel_module, facts.system.gpus
    if not isinstance(module, Ok):
        pci = facts.system.pci
        return skipped("no NVIDIA kernel module is loaded") if isinstance(pci, Ok) and not pci.value else unread(module)
    loaded = module.value.version
    if not isinstance(gpus, Ok):
        # NVML refuses everything else in this case, and says why.
        said = getattr(gpus, "reason", "")
        if "version mismatch" not in said:
            return unread(gpus)
        library = "another version"
    elif gpus.value.driver.version == loaded:
        return passed(f"both {loaded}")
    else:
        library, said = gpus.value.driver.version, f"NVML {gpus.value.driver.version}"
    made = CHECK.finding(
        f"The NVIDIA libraries are {library}, the loaded kernel module is {loaded}",
        [seen("sysfs", f"the kernel has loaded module {loaded}", module.value.text), seen("nvml", said)],
        _STEPS,
        subjects=("file:/proc/driver/nvidia/version",),
    )
    return found([made], passed(loaded))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD101",
        name="driver-library-mismatch",
        severity="error",
        category="gpu",
        asks="are the NVIDIA libraries of the version of the loaded kernel module?",
    ),
    evaluate=evaluate,
)
