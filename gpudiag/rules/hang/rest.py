"""A server at rest, told by its GPUs and counters where its connections could not be looked at."""

from __future__ import annotations

from gpudiag.model.finding import Evidence
from gpudiag.model.server import Member
from gpudiag.rules.confidence import Link
from gpudiag.waits.communicators import source
from gpudiag.waits.gpus import Device
from gpudiag.waits.picture import Picture

ENGINES = ("sglang", "vllm")
"""Only these say in their frames that a rank looks for work; a plain job that rests may as well hang."""


def at_rest(picture: Picture, ranks: list[Member]) -> Link | None:
    """What shows that nothing is in flight: every GPU idle, every collective matched, every readable rank looking for work.

    None where that does not hold, or was not seen twice.
    """
    if picture.server.engine not in ENGINES or not picture.observation.has_change or not ranks:
        return None
    devices = [picture.devices.get(m.pid) for m in ranks]
    groups = [g for g in picture.communicators if any(g.end_of(m.pid) for m in ranks)]
    if not groups or not all(g.complete and g.unmoved and g.equal for g in groups):
        return None
    known = [picture.known(m.pid, m.pid) for m in ranks if picture.stack(m.pid, m.pid) is not None]
    if not known or any(k is None or not (k.need == "work" or k.polls) for k in known):
        return None
    all_look_for_work = len(known) == len(ranks) and all(k is not None and k.need == "work" for k in known)
    if not all(d is not None and _rests(d, all_look_for_work) for d in devices):
        return None
    looks, span = len(picture.observation.snapshots), picture.observation.span_s
    shown = [d.evidence(f"GPU {d.gpu.index} has nothing to do") for d in devices if d is not None]
    claim = f"all {len(groups)} communicators: every rank launched the same, and nothing in {looks} looks over {span:.1f} s"
    return (*shown, Evidence(source=source(groups[0].ends[0].nccl), claim=claim, at=picture.at))


def _rests(device: Device, looks_for_work: bool) -> bool:
    """Counters tell of the time before the look: the last request may be in it, if the rank looks for the next one already."""
    return device.state == "idle" or (looks_for_work and device.gpu.utilisation_percent == 0)
