"""GPD105: a file of an installed package is not what its publisher shipped."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit
from gpudiag.model.install import ChangedFile
from gpudiag.rules.install.reading import environment, part, short
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unknown
from gpudiag.rules.preflight.words import listing, plural


def evaluate(facts: Facts) -> Answer:
    verified = part(facts, lambda install: install.verification)
    if isinstance(verified, Answer):
        return verified
    by_distribution: dict[str, list[ChangedFile]] = defaultdict(list)
    for change in verified.changes:
        if change.change == "modified":
            by_distribution[change.distribution].append(change)
    made = (
        CHECK.finding(
            f"{plural(len(changes), 'file')} of {name} {'was' if len(changes) == 1 else 'were'} edited after it was installed:"
            f" {listing([short(c.path) for c in changes], 3)}",
            [seen("package-record", "not as RECORD says", "\n".join(f"{short(c.path)}: {c.detail}" for c in changes[:12]))],
            (
                "if the edits are meant, keep them as a patch: the next install removes them",
                f"to go back: pip install --force-reinstall --no-deps {_pinned(name, facts)}",
            ),
            culprits=tuple(Culprit(node=f"file:{c.path}", path=c.path) for c in changes[:20]),
        )
        for name, changes in by_distribution.items()
    )
    if not verified.files and verified.unverifiable:
        return found(made, unknown("; ".join(f"{n}: {why}" for n, why in verified.unverifiable.items())))
    how = "all by content" if verified.hashed_all else "Python files by content, others by size"
    return found(made, passed(f"{plural(verified.files, 'file')} as shipped ({how})"))


def _pinned(name: str, facts: Facts) -> str:
    """'vllm==0.33.0': what to install again. A local version ('+cpu') names a build that an index may not have."""
    about = environment(facts)
    one = None if isinstance(about, Answer) else about.distribution(name)
    return f"{name}=={one.version.partition('+')[0]}" if one is not None else name


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD105",
        name="package-file-modified",
        severity="warning",
        category="install",
        asks="are the engine's files as they were shipped?",
    ),
    evaluate=evaluate,
)
