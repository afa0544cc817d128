"""GPD111: PCIe bridges between GPUs send peer traffic up to the root complex."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unknown, unread
from gpudiag.rules.preflight.words import listing, plural
from gpudiag.rules.system.pci_paths import between, is_virtual, peers, translating

_REDIRECT: Final = frozenset({"ReqRedir", "CmpltRedir"})


def evaluate(facts: Facts) -> Answer:
    gpus = peers(facts)
    if isinstance(gpus, Answer):
        return gpus
    bridges = between(gpus)
    redirecting = [(b, b.acs.value) for b in bridges if isinstance(b.acs, Ok) and _REDIRECT & set(b.acs.value)]
    if not redirecting:
        unreadable = next((b.acs for b in bridges if not isinstance(b.acs, Ok)), None)
        if unreadable is not None:
            return unread(unreadable)
        if is_virtual(facts):
            return unknown("a virtual machine does not see the bridges of its host", "on the host: gpudiag doctor --only GPD111")
        return passed(f"no redirection in {plural(len(bridges), 'bridge')} between the GPUs")
    names = [b.address for b, _ in redirecting]
    made = CHECK.finding(
        f"{plural(len(names), 'PCIe bridge')} between the GPUs redirect{'s' if len(names) == 1 else ''} peer traffic (ACS)",
        [
            seen(
                "sysfs",
                f"ACS control of {listing(names)} has redirection on",
                "\n".join(f"{b.address}: {' '.join(on)}" for b, on in redirecting[:8]),
            ),
        ],
        (
            "switch ACS off in the firmware (often 'ACS Enable' under PCIe or AMD CBS), the only setting that lasts",
            f"until the next boot, as root, for each of them: setpci -s {names[0]} ECAP_ACS+6.w=0000",
            "a virtual machine host needs ACS for isolation: there keep it and set NCCL_P2P_DISABLE=1",
        ),
        subjects=tuple(f"file:/sys/bus/pci/devices/{name}" for name in names),
        severity="error" if translating(gpus) else "warning",
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD111",
        name="acs-redirect-above-gpus",
        severity="error",
        category="link",
        asks="may GPUs below a PCIe switch talk to each other directly?",
    ),
    evaluate=evaluate,
)
