"""GPD135: two distributions or directories provide one import name; which one wins depends on the path."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.rules.install.reading import part
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen
from gpudiag.rules.preflight.words import listing

_SHARED: Final = frozenset({"nvidia", "google", "mpl_toolkits"})
"""Namespace packages, which many distributions share on purpose."""


def evaluate(facts: Facts) -> Answer:
    copies = part(facts, lambda install: install.copies)
    if isinstance(copies, Answer):
        return copies
    origins = {p.name: p.origin for p in facts.environment.packages} if facts.environment is not None else {}
    made = (
        CHECK.finding(
            f"{one.package} is installed twice: {listing(list(one.providers))}",
            [
                seen("package-metadata", "each of them provides it", "\n".join(one.providers)),
                seen("interpreter", f"what gets imported is {origins.get(one.package)}"),
            ],
            ("pip uninstall all of them, then install the one you want; sgl-kernel was renamed to sglang-kernel in 2026",),
            culprits=(),
            subjects=(f"file:{origins.get(one.package)}",),
        )
        for one in copies
        if one.package not in _SHARED
    )
    return found(made, passed("each package once"))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD135",
        name="package-installed-twice",
        severity="warning",
        category="install",
        asks="is each package of the engine installed once?",
    ),
    evaluate=evaluate,
)
