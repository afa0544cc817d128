"""GPD137: a library has only PTX for a GPU, which the driver compiles at the first start."""

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
from gpudiag.rules.preflight.words import listing, plural, size
from gpudiag.rules.system.gpus import capabilities

_LARGE: Final = 64 << 20
"""Bytes of unpacked PTX from which the first load takes minutes rather than seconds."""
_SMALL: Final = 1 << 20
"""Bytes of unpacked PTX that nobody waits for (libcufile has 10 KB): not worth a word among all libraries of an environment."""


def evaluate(facts: Facts) -> Answer:
    reading = facts.libraries
    if not isinstance(reading, Ok):
        return skipped("no interpreter to look into (--python)") if reading == NOT_ASKED else unread(reading)
    if not reading.value:
        return skipped("no library with GPU code")
    wanted = [c for c in map(parse_capability, capabilities(facts)) if c is not None]
    if not wanted:
        return unknown("no GPU here, so it is not known for which one", "name it: gpudiag doctor --for 12.0")
    whole = facts.asked.python is not None
    made = [finding for capability in wanted for finding in _jit(reading.value, capability, small_is_silent=whole)]
    return found(made, passed("machine code wherever there is much code"))


def _jit(libraries: tuple[Library, ...], capability: int, *, small_is_silent: bool) -> Iterator[Finding]:
    for library in libraries:
        covered = coverage(library, capability)
        if covered.way != "jit":
            continue
        ptx = sum(i.unpacked_bytes for i in library.images if i.target in covered.targets)
        known = backend(library.path)
        if small_is_silent and ptx < _SMALL and known is None:
            continue
        name = "/".join(library.path.split("/")[-2:])
        role = f" ({known.role})" if known else ""
        yield CHECK.finding(
            f"{name}{role} is compiled by the driver at first use on {capability_name(capability)}: only PTX is there",
            [
                seen(
                    "library-image",
                    f"{plural(covered.jit, 'unit')} with PTX {listing([t.name for t in covered.targets])}, {size(ptx)} in all",
                    library.path,
                )
            ],
            (
                "let one start go through before you judge its time; the result is kept in CUDA_CACHE_PATH (~/.nv/ComputeCache)",
                "raise CUDA_CACHE_MAXSIZE, or every start compiles again"
                if ptx > _LARGE
                else "keep that directory across containers",
            ),
            culprits=(Culprit(node=f"file:{library.path}", path=library.path),),
        )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD137",
        name="kernel-jit-only",
        severity="info",
        category="kernels",
        asks="do the GPUs run machine code, without compiling it at the first start?",
    ),
    evaluate=evaluate,
)
