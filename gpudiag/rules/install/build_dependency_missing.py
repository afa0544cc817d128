"""GPD116: a build of kernels will stop because something it needs is not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.build import SourceTree
from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.install import Environment
from gpudiag.model.reading import NOT_ASKED, Ok
from gpudiag.rules.install.build_tools import tool_version
from gpudiag.rules.install.requirements import unmet
from gpudiag.rules.kernels.runs_on import parse_capability
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread
from gpudiag.rules.preflight.words import listing, plural, version
from gpudiag.rules.system.gpus import capabilities

_PACKAGES: Final = {
    "numa.h": "libnuma-dev (Debian, Ubuntu), numactl-devel (Red Hat)",
    "infiniband/verbs.h": "libibverbs-dev (Debian, Ubuntu), rdma-core-devel (Red Hat)",
}
_POLICIES: Final = {"CMP0177": (3, 31), "CMP0169": (3, 30), "CMP0146": (3, 27)}
"""First CMake that knows a policy: cmake-policies(7)."""
_FIRST_NVCC: Final = {100: (12, 8), 103: (12, 9), 120: (12, 8), 121: (12, 9), 110: (13, 0)}
"""First CUDA toolkit that compiles for an architecture."""


def evaluate(facts: Facts) -> Answer:
    reading = facts.source_tree
    if not isinstance(reading, Ok):
        return skipped("no source tree named (--build)") if reading == NOT_ASKED else unread(reading)
    tree = reading.value
    environment = facts.environment
    made = [
        *(_requirements(tree, environment) if environment is not None else ()),
        *_headers(tree),
        *_cmake(tree, facts),
        *_nvcc(tree, facts, environment),
    ]
    if not made and not isinstance(tree.missing_headers, Ok):
        return unread(tree.missing_headers)
    return found(made, passed(f"{plural(len(tree.requires), 'requirement')}, compiler, CMake and headers are there"))


def _requirements(tree: SourceTree, environment: Environment) -> Iterator[Finding]:
    lacking = [(r, why) for r in tree.requires if (why := unmet(r, environment))]
    if lacking:
        quoted = " ".join(f"'{r}'" for r, _ in lacking)
        yield CHECK.finding(
            f"The environment lacks what the build asks for: {listing([f'{r} ({why})' for r, why in lacking])}",
            [
                seen("config-file", f"build-system.requires of {tree.path}/pyproject.toml", "\n".join(tree.requires)),
                seen("package-metadata", f"installed in {environment.python}", "\n".join(f"{r}: {why}" for r, why in lacking)),
            ],
            (
                f"{environment.python} -m pip install {quoted}",
                "then pip install . --no-build-isolation, so that it is built against the torch that will load it",
            ),
            culprits=(Culprit(node=f"file:{tree.path}/pyproject.toml", path=f"{tree.path}/pyproject.toml"),),
        )


def _headers(tree: SourceTree) -> Iterator[Finding]:
    for header in tree.missing_headers.value if isinstance(tree.missing_headers, Ok) else ():
        yield CHECK.finding(
            f"The build includes {header}, and the compiler does not find it",
            [
                seen("compiler", f"g++ -E stops at #include <{header}>"),
                seen("config-file", "the tree's CMake files call for its library", f"{tree.path}/CMakeLists.txt"),
            ],
            (f"install {_PACKAGES[header]}" if header in _PACKAGES else f"install the package that has {header}",),
            culprits=(Culprit(node=f"file:{tree.path}/CMakeLists.txt", path=f"{tree.path}/CMakeLists.txt"),),
        )


def _cmake(tree: SourceTree, facts: Facts) -> Iterator[Finding]:
    if tree.cmake_minimum is None:
        return
    wanted = max([version(tree.cmake_minimum), *(_POLICIES[p] for p in tree.policies if p in _POLICIES)])
    have = tool_version(facts.system, "cmake")
    if not have or have < wanted:
        text, here = ".".join(map(str, wanted)), ".".join(map(str, have))
        yield CHECK.finding(
            f"The build needs CMake {text}, {f'the one on PATH is {here}' if have else 'and there is none on PATH'}",
            [
                seen(
                    "config-file", f"cmake_minimum_required {tree.cmake_minimum}, policies {', '.join(tree.policies) or 'none'}"
                ),
                seen("interpreter", facts.system.tools.get("cmake", "no cmake on PATH")),
            ],
            (f"pip install 'cmake>={text}' in the environment, and look that `which cmake` is that one",),
        )


def _nvcc(tree: SourceTree, facts: Facts, environment: Environment | None) -> Iterator[Finding]:
    if tree.cmake_minimum is None:
        return
    have = tool_version(facts.system, "nvcc")
    wanted = [(c, _FIRST_NVCC[c]) for c in map(parse_capability, capabilities(facts)) if c in _FIRST_NVCC]
    torch_cuda = version(environment.torch_cuda) if environment and environment.torch_cuda else ()
    if not have:
        yield CHECK.finding(
            "The build compiles CUDA, and there is no nvcc on PATH",
            [seen("interpreter", "no nvcc on PATH")],
            ("install the CUDA toolkit of torch's version and put its bin directory on PATH",),
        )
        return
    here = ".".join(map(str, have))
    for capability, least in wanted:
        if have < least:
            yield CHECK.finding(
                f"nvcc {here} cannot compile for sm_{capability}; the first that can is {'.'.join(map(str, least))}",
                [seen("interpreter", facts.system.tools["nvcc"])],
                ("install a newer CUDA toolkit",),
            )
    if torch_cuda and torch_cuda[0] != have[0]:
        yield CHECK.finding(
            f"nvcc is of CUDA {have[0]}, torch of CUDA {torch_cuda[0]}: what is built will not load beside it",
            [
                seen("interpreter", facts.system.tools["nvcc"]),
                seen("package-text", f"torch/version.py names CUDA {environment.torch_cuda if environment else ''}"),
            ],
            ("put the toolkit of torch's CUDA version first on PATH, and set CUDA_HOME to it",),
        )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD116",
        name="build-dependency-missing",
        severity="error",
        category="build",
        asks="is everything there that a build of this source tree needs?",
    ),
    evaluate=evaluate,
)
