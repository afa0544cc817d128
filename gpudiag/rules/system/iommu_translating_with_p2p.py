"""GPD110: the IOMMU translates the addresses of GPUs that talk to each other over PCIe."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Severity
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unknown, unread
from gpudiag.rules.preflight.words import listing
from gpudiag.rules.system.gpus import consumer
from gpudiag.rules.system.pci_paths import is_virtual, peers, translating


def evaluate(facts: Facts) -> Answer:
    gpus = peers(facts)
    if isinstance(gpus, Answer):
        return gpus
    hit = translating(gpus)
    if not hit:
        unreadable = next((g.iommu_domain for g in gpus if not isinstance(g.iommu_domain, Ok)), None)
        if unreadable is not None:
            return unread(unreadable)
        if is_virtual(facts):
            return unknown(
                "a virtual machine does not see the IOMMU of its host",
                "on the host: cat /sys/bus/pci/devices/0000:BUS:00.0/iommu_group/type",
            )
        return passed("the IOMMU does not translate for the GPUs")
    options = facts.system.kernel_options
    line = options.value if isinstance(options, Ok) else ""
    kinds = sorted({g.iommu_domain.value for g in hit if isinstance(g.iommu_domain, Ok)})
    made = CHECK.finding(
        f"The IOMMU translates for {len(hit)} of {len(gpus)} GPUs that reach each other over PCIe",
        [
            seen(
                "sysfs",
                f"iommu_group/type of {listing([g.address for g in hit])} is {' or '.join(kinds)}",
                line,
            )
        ],
        (
            "boot with iommu=pt (keeps the IOMMU, passes the GPUs through), or switch it off in the firmware",
            "until then: NCCL_P2P_DISABLE=1 and the engine's --disable-custom-all-reduce, both, in the server's environment",
            "prove it: gpudiag doctor --active (copies between the GPUs; can wedge a broken machine)",
        ),
        subjects=tuple(f"file:/sys/bus/pci/devices/{g.address}/iommu_group/type" for g in hit),
        severity=_severity(facts),
    )
    return found([made], passed(""))


def _severity(facts: Facts) -> Severity:
    """An AMD host with workstation or gaming GPUs is what hangs in the field; elsewhere it costs bandwidth."""
    cpu, gpus = facts.system.cpu, facts.system.gpus
    amd = isinstance(cpu, Ok) and cpu.value.vendor == "AuthenticAMD"
    return "error" if amd and isinstance(gpus, Ok) and consumer(gpus.value) else "warning"


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD110",
        name="iommu-translating-with-p2p",
        severity="error",
        category="link",
        asks="does the IOMMU leave traffic between GPUs alone?",
    ),
    evaluate=evaluate,
)
