"""GPD138: the package that is to be built from source already runs on these GPUs as it is released."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.install import Distribution
from gpudiag.model.reading import NOT_ASKED, Ok
from gpudiag.rules.install.build_tools import jobs
from gpudiag.rules.kernels.backends import backend
from gpudiag.rules.kernels.runs_on import capability_name, coverage, parse_capability
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown, unread
from gpudiag.rules.preflight.words import listing
from gpudiag.rules.system.gpus import capabilities


def evaluate(facts: Facts) -> Answer:
    reading = facts.source_tree
    if not isinstance(reading, Ok):
        return skipped("no source tree named (--build)") if reading == NOT_ASKED else unread(reading)
    wanted = [c for c in map(parse_capability, capabilities(facts)) if c is not None]
    if not wanted:
        return unknown("no GPU here, so it is not known for which one", "name it: gpudiag doctor --for 12.0")
    count = jobs(facts.system)
    advice = f"build with MAX_JOBS={count} on this machine" if count else "build"
    released = _released(facts, reading.value.name)
    if released is None:
        return passed(f"{reading.value.name or 'the package'} is not installed as released; {advice}")
    if not isinstance(facts.libraries, Ok):
        return unread(facts.libraries)
    required = [
        library
        for library in facts.libraries.value
        if any(f"/{package}/" in library.path for package in released.packages) and (b := backend(library.path)) and b.required
    ]
    if not required or not all(coverage(library, c).way == "native" for library in required for c in wanted):
        return passed(f"{released.name} {released.version} lacks code for these GPUs: {advice}")
    names = ", ".join(map(capability_name, wanted))
    made = CHECK.finding(
        f"{released.name} {released.version} as released has machine code for {names}: build only if you patch its kernels",
        [
            seen(
                "library-image", "every library that the engine needs to start runs natively", "\n".join(x.path for x in required)
            )
        ],
        (
            f"if you must: MAX_JOBS={count} CMAKE_BUILD_PARALLEL_LEVEL={count} (memory for one nvcc target each)"
            if count
            else "if you must, limit MAX_JOBS by the memory",
            f"what the released one holds: gpudiag kernels list --for {capability_name(wanted[0])}",
        ),
        subjects=(f"file:{reading.value.path}",),
        notes=seen("library-image", f"libraries looked at: {listing([x.path.rpartition('/')[2] for x in required])}"),
    )
    return found([made], passed(""))


def _released(facts: Facts, name: str | None) -> Distribution | None:
    """The installed distribution of this name, if it is no editable one."""
    if facts.environment is None or name is None:
        return None
    one = facts.environment.distribution(name)
    return one if one is not None and one.editable is None else None


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD138",
        name="source-build-unneeded",
        severity="info",
        category="build",
        asks="does the released package lack code for these GPUs, so that a build is worth its time?",
    ),
    evaluate=evaluate,
)
