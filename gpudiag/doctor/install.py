"""What the target's own interpreter says about its packages, read through probes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from gpudiag.doctor import probe
from gpudiag.model.facts import Asked
from gpudiag.model.install import Built, Copies, Environment, Import, Install, Pin, Verification
from gpudiag.model.reading import Failed, Ok, Reading, Unavailable

T = TypeVar("T")

PACKAGES: Final = (
    "sglang",
    "vllm",
    "sgl_kernel",
    "torch",
    "triton",
    "flashinfer",
    "flash_attn",
    "deep_gemm",
    "deep_ep",
    "transformers",
    "nvidia",
)
"""Import names whose place is looked up."""

_DESCRIBE_S: Final = 30.0
_VERIFY_S: Final = 60.0
_DEEP_S: Final = 600.0
_IMPORT_S: Final = 120.0


def describe(python: str) -> Install:
    """Environment, pins, copies and built libraries of one interpreter: one probe, nothing imported."""
    answer = probe.run("describe_environment", list(PACKAGES), python=absolute(python), limit_s=_DESCRIBE_S)
    return Install(
        python=python,
        environment=part(answer, "environment", Environment),
        pins=part(
            answer, "pins", tuple[Pin, ...], absent="the environment has neither packaging nor pip to read requirements with"
        ),
        copies=part(answer, "copies", tuple[Copies, ...]),
        built=part(answer, "built", tuple[Built, ...]),
    )


def verify(python: str, distributions: Sequence[str], *, deep: bool) -> Reading[Verification]:
    """Files of these distributions against RECORD. `deep` reads every byte of every file."""
    arguments = [*(["--deep"] if deep else []), *distributions]
    answer = probe.run("verify_packages", arguments, python=absolute(python), limit_s=_DEEP_S if deep else _VERIFY_S)
    return part(answer, "verification", Verification)


def imports(python: str, modules: Sequence[str], limit_s: float = _IMPORT_S) -> Reading[tuple[Import, ...]]:
    """Each module imported in a child of the interpreter; it runs the package's own code, with its side effects."""
    answer = probe.run(
        "import_module", ["--limit", str(limit_s), *modules], python=absolute(python), limit_s=limit_s * len(modules) + 10
    )
    return part(answer, "imports", tuple[Import, ...])


def absolute(python: str) -> str:
    """A path that means the same in another directory. The last link stays: it is what makes a virtual environment."""
    return os.path.abspath(python) if os.sep in python else python


def part(answer: Reading[dict[str, Any]], name: str, kind: type[T], absent: str = "") -> Reading[T]:
    """One part of a probe's answer as the type it should have."""
    if not isinstance(answer, Ok):
        return answer
    if answer.value.get(name) is None:
        return Unavailable(reason=absent, help="") if absent else Failed(error=f"the probe's answer lacks {name!r}")
    try:
        return Ok(value=msgspec.convert(answer.value[name], kind), at=answer.at, took_s=answer.took_s)
    except msgspec.ValidationError as error:
        return Failed(error=f"the probe's answer about {name} is not as expected: {error}")


def engines_in(environment: Environment, asked: Asked) -> tuple[str, ...]:
    """The engines to look at: the one asked for, else those that are installed."""
    if asked.engine:
        return (asked.engine,)
    return tuple(name for name in ("sglang", "vllm") if (p := environment.package(name)) is not None and p.origin)


def package_directories(environment: Environment) -> Sequence[str]:
    """Where compiled libraries lie: the package directories on the path, and source trees of editable installs."""
    places = [p for p in environment.path if Path(p).name in ("site-packages", "dist-packages")]
    places += [location for p in environment.packages for location in p.locations]
    # A directory inside another one would be walked twice.
    chosen: list[str] = []
    for place in sorted({os.path.realpath(p) for p in places if os.path.isdir(p)}):
        if not any(place.startswith(one + os.sep) for one in chosen):
            chosen.append(place)
    return chosen
