"""GPUs of a server, as rules about them need them."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Culprit, Evidence
from gpudiag.model.gpu import Gpu, GpuInventory
from gpudiag.model.node import Node
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member
from gpudiag.rules.hang.standing import culprit
from gpudiag.waits.picture import Picture


def inventory(picture: Picture) -> GpuInventory | None:
    """What the driver showed in the last look."""
    reading = picture.observation.last.gpus
    return reading.value if isinstance(reading, Ok) else None


def used(picture: Picture) -> Iterator[tuple[Gpu, Member]]:
    """GPUs that ranks of this server use, each with its rank."""
    for member in picture.server.ranks:
        device = picture.devices.get(member.pid)
        if device is not None:
            yield device.gpu, member


def gpu_node(uuid: str) -> Node:
    return f"gpu:{uuid}"


def hardware_culprit(picture: Picture, gpu: Gpu, member: Member | None, *, explains: bool) -> Culprit:
    """A fault that `explains` a hang stands for the rank that waits are traced to; else the GPU stands for itself."""
    if member is not None and explains:
        owner = picture.index.owner(member.pid)
        if any(owner in cause.nodes for cause in picture.causes):
            found = culprit(picture, owner)
            return Culprit(node=owner, pid=found.pid, tid=found.tid, rank=found.rank, gpu=gpu.uuid)
    rank = picture.server.global_rank(member.rank) if member is not None else None
    return Culprit(node=gpu_node(gpu.uuid), pid=member.pid if member else None, rank=rank, gpu=gpu.uuid)


def driver_says(picture: Picture, gpu: Gpu, claim: str, excerpt: str = "") -> Evidence:
    """What the driver states about a GPU."""
    return Evidence(source="driver", claim=claim, excerpt=excerpt or f"GPU {gpu.index} {gpu.pci} {gpu.uuid}", at=picture.at)
