"""What ranks say about their collectives: watchdog lines, flight recorders and NCCL's RAS brought into one form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpudiag.model.finding import Evidence
from gpudiag.model.log import Collective, LogFacts, RasRank
from gpudiag.rules.log.places import at


class Standing(Struct, frozen=True, kw_only=True):
    """How far each rank got in one process group (or communicator). `enqueued` by global rank; `operation` is what waits."""

    group: str
    enqueued: Mapping[int, int]
    members: tuple[int, ...]
    evidence: tuple[Evidence, ...]
    waiting: Mapping[int, Collective] = {}

    @property
    def behind(self) -> tuple[int, ...]:
        """The ranks with the lowest count, if the counts differ."""
        counts = self.enqueued
        low = min(counts.values(), default=0)
        return tuple(sorted(r for r, c in counts.items() if c == low)) if any(c != low for c in counts.values()) else ()

    @property
    def absent(self) -> tuple[int, ...]:
        """Members that said nothing while others did."""
        return tuple(sorted(set(self.members) - set(self.enqueued))) if self.enqueued else ()

    @property
    def next_operation(self) -> int:
        """The operation that the ranks behind have not launched: their count + 1."""
        return min(self.enqueued.values(), default=0) + 1

    def describe(self) -> str:
        """The name of the operation that the others wait in, as far as a recorder or a watchdog names it."""
        waiting = [c for r, c in sorted(self.waiting.items()) if c.sequence == self.next_operation] or list(self.waiting.values())
        return (
            f"{waiting[0].operation} {self.next_operation}"
            if waiting and waiting[0].operation
            else f"operation {self.next_operation}"
        )


def standings(facts: LogFacts) -> tuple[Standing, ...]:
    """Every group for which something is known, best evidence first: recorder, RAS, watchdog."""
    return (*_from_recorder(facts), *_from_ras(facts), *_from_watchdog(facts))


def _from_recorder(facts: LogFacts) -> Iterable[Standing]:
    records = [r for r in facts.flight if r.rank >= 0]
    names = dict.fromkeys(name for r in records for name in (*r.groups, *r.enqueued))
    for name in names:
        mine = [r for r in records if name in r.enqueued]
        if not mine:
            continue
        members = next((r.groups[name] for r in mine if r.groups.get(name)), tuple(r.rank for r in mine))
        waiting = {r.rank: e for r in mine for e in r.entries if e.group == name and e.state != "completed"}
        told = tuple(
            Evidence(
                source="flight-recorder",
                claim=(
                    f"rank {r.rank}, group {name}: last enqueued {r.enqueued[name]}, last completed {r.completed.get(name, -1)}"
                ),
                excerpt=facts.sources[r.source].name.rpartition("/")[2] if r.source < len(facts.sources) else "",
            )
            for r in mine[:16]
        )
        yield Standing(
            group=name, enqueued={r.rank: r.enqueued[name] for r in mine}, members=members, evidence=told, waiting=waiting
        )


def _from_ras(facts: LogFacts) -> Iterable[Standing]:
    by: dict[tuple[str, str], list[RasRank]] = {}
    for entry in facts.ras:
        for kind in entry.counts:
            by.setdefault((entry.communicator, kind), []).append(entry)
    for (communicator, kind), entries in by.items():
        told = tuple(
            Evidence(source="nccl-ras", claim=f"rank {e.rank} has launched {kind} {e.counts[kind]}") for e in entries[:16]
        )
        counts = {e.rank: e.counts[kind] for e in entries}
        yield Standing(group=f"{kind} of {communicator}", enqueued=counts, members=tuple(counts), evidence=told)


def _from_watchdog(facts: LogFacts) -> Iterable[Standing]:
    counts: dict[int, int] = {}
    waiting: dict[int, Collective] = {}
    told: list[Evidence] = []
    for event in facts.of("collective-status", "collective-timeout"):
        index = event.speaker.rank.global_
        if index is None and event.fields.get("rank", "").isdigit():
            index = int(event.fields["rank"][:6])
        if index is None:
            continue
        if "enqueued" in event.fields:
            counts[index] = int(event.fields["enqueued"][:18])
        elif "sequence" in event.fields:
            sequence = int(event.fields["sequence"][:18])
            counts.setdefault(index, sequence)
            sizes = f"{event.fields.get('numel_in')}->{event.fields.get('numel_out')}"
            waiting.setdefault(
                index,
                Collective(
                    group="", sequence=sequence, operation=event.fields["operation"], state="timeout", input_sizes=sizes, dtype=""
                ),
            )
        else:
            continue
        if len(told) < 16:
            told.append(
                Evidence(
                    source="collective-watchdog",
                    claim=f"rank {index}'s watchdog ({at(facts, event.place)})",
                    excerpt=event.text[:300],
                )
            )
    if counts:
        members = tuple(range(facts.world_size)) if facts.world_size and facts.world_size <= 4096 else tuple(sorted(counts))
        yield Standing(group="", enqueued=counts, members=members, evidence=tuple(told), waiting=waiting)
