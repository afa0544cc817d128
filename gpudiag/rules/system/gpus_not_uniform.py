"""GPD121: the GPUs of one tensor-parallel group differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, Gpu, GpuSet
from gpudiag.model.finding import Finding
from gpudiag.model.reading import Ok, Reading
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import plural, size
from gpudiag.rules.system.gpus import gpu_set, node


def _value(reading: Reading[int] | Reading[str]) -> str:
    return str(reading.value) if isinstance(reading, Ok) else ""


_QUALITIES: Final[dict[str, Callable[[Gpu], str]]] = {
    "model": lambda g: g.name,
    "compute capability": lambda g: _value(g.capability),
    "memory": lambda g: size(g.memory_bytes.value) if isinstance(g.memory_bytes, Ok) else "",
    "link width": lambda g: _value(g.link_width),
    "number of NVLinks": lambda g: str(len(g.nvlinks.value)) if isinstance(g.nvlinks, Ok) else "",
    "VBIOS": lambda g: _value(g.vbios),
}
"""What should be equal; '' is a value that could not be read and is not compared."""


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    if len(gpus.gpus) < 2:
        return skipped("one GPU")
    return found([*_different(gpus), *_one_way(gpus)], passed(f"{plural(len(gpus.gpus), 'GPU')} alike"))


def _different(gpus: GpuSet) -> Iterator[Finding]:
    different: dict[str, dict[str, list[int]]] = {}
    for quality, of in _QUALITIES.items():
        groups: dict[str, list[int]] = {}
        for gpu in gpus.gpus:
            if text := of(gpu):
                groups.setdefault(text, []).append(gpu.index)
        if len(groups) > 1:
            different[quality] = groups
    if not different:
        return
    rows = [
        f"{quality}: {'; '.join(f'{text} on {ids}' for text, ids in groups.items())}" for quality, groups in different.items()
    ]
    # Another VBIOS alone is common after a replacement and changes little.
    only_vbios = set(different) == {"VBIOS"}
    yield CHECK.finding(
        f"The GPUs differ in {', '.join(different)}",
        [seen("nvml", "values differ between the GPUs", "\n".join(rows))],
        (
            "serve on equal ones: CUDA_VISIBLE_DEVICES=... with CUDA_DEVICE_ORDER=PCI_BUS_ID",
            "a tensor-parallel group runs at the pace, and plans with the memory, of its weakest GPU",
        ),
        subjects=tuple(node(g) for g in gpus.gpus),
        severity="info" if only_vbios else "warning",
    )


def _one_way(gpus: GpuSet) -> Iterator[Finding]:
    ok = {(p.source, p.target): p.read == 0 and p.write == 0 for p in gpus.peers}
    odd = sorted((a, b) for (a, b), works in ok.items() if works and ok.get((b, a)) is False)
    if odd:
        yield CHECK.finding(
            f"Peer access works in one direction only: {', '.join(f'{a} to {b}' for a, b in odd[:4])}",
            [seen("nvml", "nvmlDeviceGetP2PStatus differs between the two directions")],
            ("NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce until it is clear why", "gpudiag doctor --active"),
            subjects=tuple(node(g) for g in gpus.gpus),
        )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD121",
        name="gpus-not-uniform",
        severity="warning",
        category="gpu",
        asks="are the GPUs of one server alike?",
    ),
    evaluate=evaluate,
)
