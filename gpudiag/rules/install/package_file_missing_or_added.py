"""GPD134: files of a package are gone, or lie in it that its publisher did not ship."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.install import ChangedFile
from gpudiag.rules.install.reading import part, short
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unknown
from gpudiag.rules.preflight.words import listing, plural

_WHOLE_DIRECTORY: Final = "sglang/srt/models/"
"""SGLang imports every module of this directory at start: a second copy of a model class there ends it."""


def evaluate(facts: Facts) -> Answer:
    verified = part(facts, lambda install: install.verification)
    if isinstance(verified, Answer):
        return verified
    missing = [c for c in verified.changes if c.change == "missing"]
    added = [c for c in verified.changes if c.change == "added"]
    made = [*_missing(missing), *_added(added)]
    if not verified.files and verified.unverifiable:
        return found(made, unknown("; ".join(f"{n}: {why}" for n, why in verified.unverifiable.items())))
    return found(made, passed(f"{plural(verified.files, 'file')} there, none beside them"))


def _missing(changes: list[ChangedFile]) -> Iterator[Finding]:
    if changes:
        names = sorted({c.distribution for c in changes})
        yield CHECK.finding(
            f"{', '.join(names)} lacks {plural(len(changes), 'file')}: {_shown(changes)}",
            [seen("package-record", "RECORD lists them", "\n".join(short(c.path) for c in changes[:12]))],
            (f"pip install --force-reinstall --no-deps {' '.join(names)}",),
            culprits=_culprits(changes),
            severity="error",
        )


def _added(changes: list[ChangedFile]) -> Iterator[Finding]:
    if changes:
        loaded = [c for c in changes if _WHOLE_DIRECTORY in c.path]
        yield CHECK.finding(
            f"The engine's packages hold {plural(len(changes), 'file')} that it did not ship: {_shown(changes)}",
            [seen("package-record", "RECORD does not know them", "\n".join(short(c.path) for c in changes[:12]))],
            (
                "SGLang imports every file of sglang/srt/models: move copies and backups out of it"
                if loaded
                else "if they belong to a patch, keep it: the next install may leave them behind or remove them",
            ),
            culprits=_culprits(changes),
            severity="warning" if loaded else "info",
        )


def _shown(changes: list[ChangedFile]) -> str:
    return listing([short(c.path) for c in changes], 3)


def _culprits(changes: list[ChangedFile]) -> tuple[Culprit, ...]:
    return tuple(Culprit(node=f"file:{c.path}", path=c.path) for c in changes[:20])


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD134",
        name="package-file-missing-or-added",
        severity="warning",
        category="install",
        asks="are all files of the engine there, and no others?",
    ),
    evaluate=evaluate,
)
