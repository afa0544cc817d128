"""GPD103: a library has no code that a GPU can run, neither machine code nor PTX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.library import Library
from gpudiag.model.reading import NOT_ASKED, Ok
from gpudiag.rules.kernels.backends import backend
from gpudiag.rules.kernels.runs_on import capability_name, coverage, parse_capability
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown, unread
from gpudiag.rules.preflight.words import listing, plural
from gpudiag.rules.system.gpus import capabilities


def evaluate(facts: Facts) -> Answer:
    reading = facts.libraries
    if not isinstance(reading, Ok):
        return skipped("no interpreter to look into (--python)") if reading == NOT_ASKED else unread(reading)
    if not reading.value:
        return skipped("no library with GPU code")
    wanted = [c for c in map(parse_capability, capabilities(facts)) if c is not None]
    if not wanted:
        return unknown("no GPU here, so it is not known for which one", "name it: gpudiag doctor --for 12.0")
    made = [finding for capability in wanted for finding in _missing(reading.value, capability)]
    names = ", ".join(map(capability_name, wanted))
    return found(made, passed(f"{plural(len(reading.value), 'library', 'libraries')} with GPU code, each runs on {names}"))


def _missing(libraries: tuple[Library, ...], capability: int) -> Iterator[Finding]:
    for library in libraries:
        if coverage(library, capability).way != "none" or not library.units:
            continue
        known = backend(library.path)
        name = "/".join(library.path.split("/")[-2:])
        role = f" ({known.role})" if known else ""
        targets = [t.name for t in library.targets]
        yield CHECK.finding(
            f"{name}{role} has no code for compute capability {capability_name(capability)}",
            [seen("library-image", f"{plural(library.fatbins, 'compiled unit')} for {listing(targets, 8)}", library.path)],
            (known.instead if known else "use a build of this library for this GPU, or do without what needs it",),
            culprits=(Culprit(node=f"file:{library.path}", path=library.path),),
            severity=None if known and known.required else "info" if known else "warning",
        )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD103",
        name="kernel-arch-missing",
        severity="error",
        category="kernels",
        asks="does every compiled library have code for these GPUs?",
    ),
    evaluate=evaluate,
)
