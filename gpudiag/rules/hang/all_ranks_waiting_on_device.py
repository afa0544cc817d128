"""GPD311: every rank launched the same collectives, and every GPU holds a kernel that does not end."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.server import Member
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.devices import kernel_culprit, name_the_kernel, resident_all_along, waits_on_device
from gpudiag.waits import kernels
from gpudiag.waits.communicators import Group, source
from gpudiag.waits.picture import Picture

CANDIDATES = (
    "a kernel that does not end on one of the GPUs, queued before or instead of a collective",
    "a message between two ranks that one of them never sends or takes (Send and Recv are not counted)",
    "collectives in a CUDA graph that not all ranks replay",
    "a transport between the GPUs that does not deliver",
)


def evaluate(picture: Picture) -> Iterator[Finding]:
    ranks = [m for m in picture.server.ranks if picture.index.alive(m.pid)]
    if len(ranks) < 2 or picture.lost or not picture.observation.has_change:
        return
    if not all(waits_on_device(picture, m) and not picture.index.stopped(m.pid) for m in ranks):
        return
    shared = [g for g in picture.communicators if len({e.pid for e in g.ends} & {m.pid for m in ranks}) > 1]
    if not shared or not all(g.complete and g.unmoved and g.equal for g in shared):
        # Without the counts of every rank, those on other hosts included, they may as well wait for one that stays away.
        return
    if any(kernels.stuck(picture, m.pid) is not None for m in ranks):
        return
    devices = [picture.devices[m.pid] for m in ranks]
    links: list[Link] = [tuple(d.evidence(f"GPU {d.gpu.index} is {d.state}") for d in devices[:8])]
    links.append((_counts(picture, shared),))
    links.append(tuple(resident_all_along(picture, d) for d in devices[:8]))
    why = Evidence(source="absence", claim=f"which of these it is does not show: {'; '.join(CANDIDATES)}", at=picture.at)
    links.append((why,))
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"all {len(ranks)} ranks wait for their GPUs after equal counts: a kernel does not end, or a message is lost",
        links=links,
        culprits=tuple(kernel_culprit(picture, m, d) for m, d in zip(ranks, devices, strict=True)),
        notes=_named(picture, ranks),
        next_steps=(
            _next(picture, ranks),
            "look for errors of links and devices: `dmesg -T | grep -iE 'xid|nvlink|iommu'`",
            *(("restart the server: the dump has ended ranks of it",) if kernels.ended(picture) else ()),
        ),
    )


def _named(picture: Picture, ranks: list[Member]) -> tuple[Evidence, ...]:
    """The collectives in which the ranks were found, where they were dumped."""
    inside = ((m, kernels.waits_for_peers(picture, m.pid)) for m in ranks)
    return tuple(kernels.evidence(picture, member, kernel) for member, kernel in inside if kernel is not None)


def _next(picture: Picture, ranks: list[Member]) -> str:
    if _named(picture, ranks):
        return "the kernels are collectives: look at the transport between the GPUs, `gpudiag doctor --active` tests it"
    return name_the_kernel(picture, ranks[0].pid)


def _counts(picture: Picture, shared: list[Group]) -> Evidence:
    text = "; ".join(
        f"{g.name}: " + " ".join(f"{name} {n}" for name, n in g.ends[0].now.by_name().items() if n) for g in shared[:4]
    )
    kinds = {source(e.nccl) for g in shared for e in g.ends}
    worst = next((k for k in ("nccl-ras", "nccl-memory-unverified") if k in kinds), "nccl-memory")
    return Evidence(
        source=worst,
        claim="all ranks launched the same collectives, and none more between the looks",
        excerpt=text,
        at=picture.at,
    )


RULE = Rule(code="GPD311", name="all-ranks-waiting-on-device", severity="error", evaluate=evaluate, specificity=60)
