"""GPD112: variables of NCCL, CUDA and the engines that contradict each other, the machine or the request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Finding, Severity
from gpudiag.model.install import NcclLibrary
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.nccl_settings import settings

_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class _Clash(Struct, frozen=True):
    title: str
    variables: tuple[str, ...]
    step: str
    severity: Severity = "warning"


def evaluate(facts: Facts) -> Answer:
    found_settings = settings(facts.system)
    made = (_finding(clash, found_settings) for look in _LOOKS for clash in look(found_settings, facts))
    # Images of CUDA set NCCL_VERSION to what they hold; nobody reads it.
    count = sum(name.startswith("NCCL_") and name != "NCCL_VERSION" for name in found_settings)
    return found(made, passed(f"{plural(count, 'NCCL setting')}, none against another"))


def _finding(clash: _Clash, found_settings: dict[str, tuple[str, str]]) -> Finding:
    told = "\n".join(f"{v}={found_settings[v][0]}  ({found_settings[v][1]})" for v in clash.variables if v in found_settings)
    return CHECK.finding(
        clash.title, [seen("environment", "as set where gpudiag runs", told)], (clash.step,), severity=clash.severity
    )


def _on(found_settings: dict[str, tuple[str, str]], name: str) -> bool:
    return found_settings.get(name, ("", ""))[0].strip().lower() in _TRUE


def _peer_to_peer(s: dict[str, tuple[str, str]], facts: Facts) -> Iterator[_Clash]:  # noqa: ARG001  one signature for all looks
    if not _on(s, "NCCL_P2P_DISABLE"):
        return
    if "NCCL_P2P_LEVEL" in s:
        yield _Clash(
            "NCCL_P2P_DISABLE=1 makes NCCL_P2P_LEVEL void",
            ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"),
            "unset one of them",
        )
    if _on(s, "NCCL_SHM_DISABLE"):
        yield _Clash(
            "With peer access and shared memory off, NCCL goes through sockets inside one host",
            ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"),
            "unset NCCL_SHM_DISABLE",
        )
    yield _Clash(
        "NCCL_P2P_DISABLE=1 keeps only NCCL off peer access: the engine's custom all-reduce still uses it",
        ("NCCL_P2P_DISABLE",),
        "serve with --disable-custom-all-reduce as well, if peer access is what fails",
        "info",
    )


def _interface(s: dict[str, tuple[str, str]], facts: Facts) -> Iterator[_Clash]:
    wanted = s.get("NCCL_SOCKET_IFNAME", ("", ""))[0]
    have = facts.system.interfaces
    if not wanted or not isinstance(have, Ok):
        return
    # ^ excludes, = asks for an exact name, otherwise a prefix: NCCL's documentation of NCCL_SOCKET_IFNAME.
    exclude, exact = wanted.startswith("^"), wanted.lstrip("^").startswith("=")
    names = [n for n in wanted.lstrip("^=").split(",") if n]
    hit = [i for i in have.value if any(i == n if exact else i.startswith(n) for n in names)]
    left = [i for i in have.value if i not in hit] if exclude else hit
    if not left:
        yield _Clash(
            f"NCCL_SOCKET_IFNAME={wanted} leaves no network interface (there are: {', '.join(have.value)})",
            ("NCCL_SOCKET_IFNAME",),
            "name one that exists, or unset it",
            "error",
        )


def _infiniband(s: dict[str, tuple[str, str]], facts: Facts) -> Iterator[_Clash]:
    devices = facts.system.infiniband
    if isinstance(devices, Ok) and not devices.value and s.get("NCCL_IB_HCA"):
        yield _Clash(
            "NCCL_IB_HCA names adapters, and this machine has no InfiniBand device",
            ("NCCL_IB_HCA",),
            "unset it, or pass the devices into the container: --device /dev/infiniband",
        )


def _two_libraries(s: dict[str, tuple[str, str]], facts: Facts) -> Iterator[_Clash]:  # noqa: ARG001
    """The engine's own collectives with one NCCL, those of torch with another, in one process and on the same GPUs."""
    loaded = facts.install.value.nccl if isinstance(facts.install, Ok) else None
    if not isinstance(loaded, Ok) or not loaded.value or loaded.value[0].user != "torch":
        return
    first = loaded.value[0]
    for other in loaded.value[1:]:
        if other.path != first.path:
            yield _Clash(
                f"{other.by} gives {other.user} another NCCL ({_named(other)}) than torch loads ({_named(first)})",
                (other.by,),
                f"unset {other.by}, or LD_PRELOAD the same file so that torch uses it as well",
            )


def _named(one: NcclLibrary) -> str:
    return f"{one.version}, {one.path}" if one.version else one.path


def _order(s: dict[str, tuple[str, str]], facts: Facts) -> Iterator[_Clash]:
    gpus = facts.system.gpus
    mixed = isinstance(gpus, Ok) and len({g.name for g in gpus.value.gpus}) > 1
    if mixed and s.get("CUDA_DEVICE_ORDER", ("", ""))[0] != "PCI_BUS_ID":
        yield _Clash(
            "The GPUs are of several kinds and CUDA numbers the fastest first, nvidia-smi by bus",
            ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"),
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )


def _slow(s: dict[str, tuple[str, str]], facts: Facts) -> Iterator[_Clash]:  # noqa: ARG001
    if _on(s, "CUDA_LAUNCH_BLOCKING"):
        yield _Clash(
            "CUDA_LAUNCH_BLOCKING=1 waits after every kernel: a setting for debugging, left on",
            ("CUDA_LAUNCH_BLOCKING",),
            "unset CUDA_LAUNCH_BLOCKING",
        )
    if s.get("NCCL_DEBUG", ("", ""))[0].upper() == "TRACE":
        yield _Clash("NCCL_DEBUG=TRACE writes a line a call: left on", ("NCCL_DEBUG",), "export NCCL_DEBUG=WARN")


def _renamed(s: dict[str, tuple[str, str]], facts: Facts) -> Iterator[_Clash]:  # noqa: ARG001
    for old, new in _RENAMED.items():
        if old in s and new not in s:
            yield _Clash(f"{old} has been renamed to {new}; newer torch does not read it", (old,), f"set {new} instead", "info")


_RENAMED: Final = {
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
}
"""Old and new names: torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp."""

_LOOKS: Final[tuple[Callable[[dict[str, tuple[str, str]], Facts], Iterator[_Clash]], ...]] = (
    _peer_to_peer,
    _interface,
    _infiniband,
    _two_libraries,
    _order,
    _slow,
    _renamed,
)

CHECK: Final = Check(
    info=CheckInfo(
        code="GPD112",
        name="nccl-env-contradiction",
        severity="warning",
        category="environment",
        asks="do the variables of NCCL and CUDA fit each other and the machine?",
    ),
    evaluate=evaluate,
)
