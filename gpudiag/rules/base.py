"""What a rule is, and the one way to make a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from gpudiag.model.finding import Consequence, Culprit, Evidence, Finding, Severity
from gpudiag.model.node import Node
from gpudiag.rules.confidence import Link, chain

C = TypeVar("C")


class Rule(Struct, Generic[C], frozen=True, kw_only=True):
    """One judgement. `evaluate` is pure: it gets a case (what was read, already arranged) and yields findings.

    `specificity` orders rules that fire on the same node: the higher says more. 0 is for what is left when nothing
    else explains the node.
    """

    code: str
    name: str
    severity: Severity
    evaluate: Callable[[C], Iterable[Finding]]
    specificity: int = 50


def finding(
    code: str,
    name: str,
    severity: Severity,
    *,
    title: str,
    links: Sequence[Link],
    next_steps: Sequence[str],
    culprits: Sequence[Culprit] = (),
    subjects: Sequence[Node] = (),
    notes: Sequence[Evidence] = (),
    consequences: Sequence[Consequence] = (),
) -> Finding:
    """Make a finding whose confidence comes from its `links`; `notes` are shown but carry no weight.

    An empty link is left out: what could not be read supports nothing and contradicts nothing. A rule that cannot do
    without a piece of evidence checks for it before.

    `subjects` defaults to the nodes of the culprits.
    """
    links = [link for link in links if link]
    shown: dict[Evidence, None] = {e: None for link in links for e in link}
    shown.update(dict.fromkeys(notes))
    return Finding(
        code=code,
        name=name,
        severity=severity,
        confidence=chain(links),
        title=title,
        subjects=tuple(subjects) or tuple(c.node for c in culprits),
        evidence=tuple(shown),
        next_steps=tuple(next_steps),
        culprits=tuple(culprits),
        consequences=tuple(consequences),
    )
