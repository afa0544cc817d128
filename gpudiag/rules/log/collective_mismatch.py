"""GPD302: two ranks launched different operations under the same number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.log import Collective, LogFacts
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.order import standings
from gpudiag.rules.log.ranks import names, rank_culprit

CODE: Final = "GPD302"
NAME: Final = "collective-mismatch"

_SIZES_MAY_DIFFER: Final = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv", "broadcast")


def _evaluate(case: LogCase) -> Iterable[Finding]:
    if case.failure.kind != "hang":
        return
    found = _from_recorder(case.facts) or _from_watchdog(case.facts)
    if found is None:
        return
    sequence, sides = found
    ranks = sorted(r for side in sides.values() for r in side)
    told = [
        Evidence(source="flight-recorder", claim=f"{names(side)} launched {what} as number {sequence}")
        for what, side in sides.items()
    ]
    yield finding(
        CODE,
        NAME,
        "error",
        title=f"collective {sequence} is not the same everywhere: "
        + "; ".join(f"{names(side)} {what}" for what, side in list(sides.items())[:4]),
        links=[told],
        next_steps=[
            "find the branch that only some ranks take before this call: the frames of the recorder's entry name the caller",
            "compare the ranks' arguments: batch size, dtype, flags, model files",
        ],
        culprits=[rank_culprit(case.facts, r) for r in ranks[:16]],
    )


def _from_recorder(facts: LogFacts) -> tuple[int, dict[str, list[int]]] | None:
    """The first number of a group under which ranks recorded different operations or sizes."""
    by: dict[tuple[str, int], dict[int, Collective]] = {}
    for record in facts.flight:
        for entry in record.entries:
            if entry.sequence > 0:
                by.setdefault((entry.group, entry.sequence), {}).setdefault(record.rank, entry)
    for (_, sequence), entries in sorted(by.items(), key=lambda item: item[0][1]):
        sides: dict[str, list[int]] = {}
        for index, entry in entries.items():
            sides.setdefault(_shape(entry), []).append(index)
        if len(sides) > 1:
            return sequence, sides
    return None


def _from_watchdog(facts: LogFacts) -> tuple[int, dict[str, list[int]]] | None:
    by: dict[int, dict[str, list[int]]] = {}
    for standing in standings(facts):
        if standing.group == "":
            for index, entry in standing.waiting.items():
                by.setdefault(entry.sequence, {}).setdefault(_shape(entry), []).append(index)
    return next(((s, sides) for s, sides in sorted(by.items()) if len(sides) > 1), None)


def _shape(entry: Collective) -> str:
    """What must agree between ranks."""
    if any(word in entry.operation.lower() for word in _SIZES_MAY_DIFFER):
        return entry.operation
    return " ".join(p for p in (entry.operation, entry.input_sizes, entry.dtype) if p)


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=70, evaluate=_evaluate)
