"""How far a server got, by its milestones."""

from __future__ import annotations

from gpudiag.model.log import LogFacts, Milestone

SERVING = 100


def last_reached(facts: LogFacts) -> tuple[Milestone, ...]:
    """The furthest milestone of each rank, in rank order; of the server as a whole if no rank speaks."""
    best: dict[int | None, Milestone] = {}
    for milestone in facts.milestones:
        index = milestone.speaker.rank.global_
        held = best.get(index)
        if held is None or milestone.order >= held.order:
            best[index] = milestone
    ranked = [best[i] for i in sorted(i for i in best if i is not None)]
    return tuple(ranked) or tuple(best.values())


_EVERY_RANK = frozenset({30, 32, 33, 36, 40, 50, 72})
"""Orders of the steps that every rank reports; of the others often only the first rank speaks."""


def behind(facts: LogFacts) -> tuple[Milestone, ...]:
    """The ranks that lack a step which another rank reports and every rank should."""
    best: dict[int, Milestone] = {}
    for milestone in facts.milestones:
        index = milestone.speaker.rank.global_
        if index is not None and milestone.order in _EVERY_RANK and (index not in best or milestone.order >= best[index].order):
            best[index] = milestone
    high = max((m.order for m in best.values()), default=0)
    return tuple(best[i] for i in sorted(best) if best[i].order < high)


def furthest(facts: LogFacts) -> Milestone | None:
    """The furthest milestone of all."""
    return max(facts.milestones, key=lambda m: (m.order, m.place.number), default=None)


def served(facts: LogFacts) -> bool:
    """Whether the server came up."""
    return any(m.order >= SERVING for m in facts.milestones)
