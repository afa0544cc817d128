"""The GPUs as NVML describes them, read by a child that can be killed: a driver in trouble may never answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from gpudiag.doctor import probe
from gpudiag.doctor.reads import Root
from gpudiag.model.facts import Driver, Gpu, GpuProcess, GpuSet, PeerLink
from gpudiag.model.reading import Failed, Ok, Reading, Unavailable

T = TypeVar("T")

_LIMIT_S: Final = 10.0


def gpus(root: Root) -> Reading[GpuSet]:
    """Driver, GPUs and what they say of each other. Unavailable without a driver, Failed if NVML hangs or breaks."""
    answer = probe.run("read_gpus", [], limit_s=_LIMIT_S)
    if not isinstance(answer, Ok):
        return answer
    read = answer.value
    if "unavailable" in read:
        return Unavailable(
            reason=str(read["unavailable"]),
            help="nvidia-smi; in a container: docker run --gpus all, with the NVIDIA container toolkit on the host",
        )
    try:
        found = GpuSet(
            driver=Driver(version=str(read["driver"]), cuda=str(read["cuda"])),
            gpus=tuple(_gpu(root, index, g, answer.at) for index, g in enumerate(read["gpus"])),
            peers=tuple(PeerLink(source=a, target=b, read=r, write=w) for a, b, r, w in read["peers"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        return Failed(error=f"the answer about the GPUs is not as expected: {type(error).__name__}: {error}")
    return Ok(value=found, at=answer.at, took_s=answer.took_s)


def _gpu(root: Root, index: int, read: dict[str, Any], at: float) -> Gpu:
    def value(name: str, convert: Callable[[Any], T]) -> Reading[T]:
        one = read[name]
        if "ok" not in one:
            return Unavailable(reason=f"NVML: {one['why']}", help="")
        return Ok(value=convert(one["ok"]), at=at)

    def named(name: str, default: str) -> str:
        return str(read[name].get("ok", default))

    return Gpu(
        index=index,
        uuid=named("uuid", f"GPU-unknown-{index}"),
        name=named("name", "unknown"),
        bus_id=named("bus_id", ""),
        capability=value("capability", str),
        memory_bytes=value("memory_bytes", int),
        memory_used_bytes=value("memory_used_bytes", int),
        utilization_percent=value("utilization_percent", int),
        vbios=value("vbios", str),
        persistence=value("persistence", bool),
        compute_mode=value("compute_mode", int),
        mig=value("mig", bool),
        performance_state=value("performance_state", int),
        clocks_event_reasons=value("clocks_event_reasons", int),
        link_gen=value("link_gen", int),
        link_gen_max=value("link_gen_max", int),
        link_width=value("link_width", int),
        link_width_max=value("link_width_max", int),
        nvlinks=value("nvlinks", lambda states: tuple(bool(s) for s in states)),
        fabric_state=value("fabric_state", int),
        ecc_uncorrected=value("ecc_uncorrected", int),
        rows_pending=value("rows_pending", bool),
        rows_failed=value("rows_failed", bool),
        processes=value("processes", lambda table: tuple(_process(root, pid, used) for pid, used in table)),
    )


def _process(root: Root, pid: int, used: int) -> GpuProcess:
    try:
        name = root.text(f"proc/{pid}/comm", 256)
    except OSError:
        name = ""
    return GpuProcess(pid=pid, memory_bytes=used, name=name)
