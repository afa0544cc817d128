"""What rules about kernels on GPUs share."""

from __future__ import annotations

from gpudiag.model.finding import Culprit, Evidence
from gpudiag.model.node import Node
from gpudiag.model.reading import value_or
from gpudiag.model.server import Member
from gpudiag.rules.hang.standing import culprit
from gpudiag.waits.gpus import WAITING, Device
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture

_ARMED = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP"


def name_the_kernel(picture: Picture, pid: int) -> str:
    """The next step that names the kernel, by what the server was started with."""
    root = picture.server.root_pid
    if any(value_or(p.environ, {}).get(_ARMED) == "1" for _, p in picture.members()):
        return f"name the kernel (this ends the server): `gpudiag attach {root} --kernel-dump`"
    return (
        f"name the kernel (this stops it meanwhile): `cuda-gdb -p {pid} -batch -ex 'info cuda kernels' -ex detach`; if it shows"
        " none, start the server with `gpudiag launch --arm-kernel-dump`, and `gpudiag attach --kernel-dump` names it"
    )


def rank_of_kernel(picture: Picture, target: Node) -> tuple[Member, Device] | None:
    """The rank on whose GPU a kernel node is."""
    for member in picture.server.ranks:
        device = picture.devices.get(member.pid)
        if device is not None and device.node == target:
            return member, device
    return None


def kernel_culprit(picture: Picture, member: Member, device: Device) -> Culprit:
    """The rank and the line from which it waits, with its GPU."""
    found = culprit(picture, picture.index.owner(member.pid))
    return Culprit(
        node=found.node,
        pid=found.pid,
        tid=found.tid,
        rank=found.rank,
        gpu=device.gpu.uuid,
        file=found.file,
        line=found.line,
        function=found.function,
    )


def waits_on_device(picture: Picture, member: Member) -> bool:
    """Whether a kernel that never ends is resident on the GPU of a rank that launches nothing more."""
    device = picture.devices.get(member.pid)
    moves = picture.motion(member.pid, member.pid) is Motion.MOVING
    return device is not None and device.state in WAITING and not moves


def resident_all_along(picture: Picture, device: Device) -> Evidence:
    """That the kernel stayed: weak with two looks, strong after a third at least 5 s later."""
    looks, span = len(picture.observation.snapshots), picture.observation.span_s
    source = "long-look" if looks >= 3 and span >= 5.0 else "two-looks"
    claim = f"GPU {device.gpu.index} had a kernel resident in {looks} looks over {span:.1f} s"
    return Evidence(source=source, claim=claim, excerpt=device.figures, at=picture.at)
