"""Before a build of kernels: what it will stop at, whether it is worth its time, and how many jobs the memory allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpudiag.doctor import build_tree
from gpudiag.model.build import SourceTree
from gpudiag.model.facts import Asked, Cgroup, Facts
from gpudiag.model.install import Distribution, Environment, Install
from gpudiag.model.library import Images, Library, Target, Unit
from gpudiag.model.reading import Ok
from gpudiag.rules.install.build_tools import jobs, tool_version
from gpudiag.rules.install.requirements import unmet
from tests.doctor.machines import GIB, facts, ok, result, system
from tests.doctor.trees import put

TREE = {
    "pyproject.toml": (
        '[build-system]\nrequires = ["scikit-build-core>=0.10", "torch==2.14.1", "wheel"]\n[project]\nname = "sglang-kernel"\n'
    ),
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.26)\ncmake_policy(SET CMP0177 NEW)\n# numa is mentioned here only\n",
}
TOOLS = {
    "nvcc": "/usr/local/cuda/bin/nvcc: Cuda compilation tools, release 13.0, V13.0.88",
    "cmake": "/usr/bin/cmake: cmake version 3.31.2",
    "ninja": "/usr/bin/ninja: 1.13.0",
    "g++": "/usr/bin/g++: g++ (Debian 12.2.0-14) 12.2.0",
}


def tree(root: Path, **changes: str) -> SourceTree:
    for path, text in {**TREE, **changes}.items():
        put(root, path, text)
    return build_tree.source_tree(root)


def environment(**versions: str) -> Environment:
    dists = tuple(
        Distribution(name=n.replace("_", "-"), version=v, where="", packages=("sgl_kernel",) if "kernel" in n else ())
        for n, v in versions.items()
    )
    return Environment(
        python="/v/bin/python",
        version="3.12.0",
        prefix="/v",
        path=(),
        extension_suffixes=(),
        distributions=dists,
        packages=(),
        torch_cuda="13.0",
    )


def given(source: SourceTree, about: Environment, **changes: Any) -> Facts:
    asked = Asked(build=source.path, python="/v/bin/python", gpus_for=("12.0",))
    install = ok(Install(python="/v/bin/python", environment=ok(about)))
    return facts(asked, source_tree=ok(source), install=install, **{"tools": TOOLS, **changes})


COMPLETE = {"scikit_build_core": "1.1.2", "torch": "2.14.1+cu130", "wheel": "0.45"}


def test_a_build_that_has_all_it_needs(tmp_path: Path) -> None:
    assert result("116", given(tree(tmp_path), environment(**COMPLETE))).status == "ok"


def test_a_header_and_a_build_backend_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second story of a build: libnuma's header and scikit-build-core, each of which stops it after minutes."""
    monkeypatch.setitem(build_tree._HEADERS, "gpudiag_no_such_header.h", build_tree._HEADERS["numa.h"])
    source = tree(tmp_path, **{"CMakeLists.txt": TREE["CMakeLists.txt"] + "target_link_libraries(mscclpp numa ibverbs)\n"})
    assert isinstance(source.missing_headers, Ok)
    assert "gpudiag_no_such_header.h" in source.missing_headers.value
    found = result("116", given(source, environment(torch="2.14.1", wheel="1"))).findings
    titles = " | ".join(f.title for f in found)
    assert "scikit-build-core>=0.10 (absent)" in titles
    assert "gpudiag_no_such_header.h, and the compiler does not find it" in titles
    assert "'scikit-build-core>=0.10'" in found[0].next_steps[0]


def test_a_header_that_the_compiler_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for header in ("numa.h", "infiniband/verbs.h"):
        put(tmp_path, f"include/{header}", "")
    monkeypatch.setenv("CPATH", str(tmp_path / "include"))
    source = tree(tmp_path / "tree", **{"CMakeLists.txt": "cmake_minimum_required(VERSION 3.26)\nadd_subdirectory(mscclpp)\n"})
    assert source.headers == ("numa.h", "infiniband/verbs.h")
    assert isinstance(source.missing_headers, Ok)
    assert source.missing_headers.value == ()


def test_a_comment_calls_for_nothing(tmp_path: Path) -> None:
    assert tree(tmp_path).headers == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tools": {**TOOLS, "cmake": "/usr/bin/cmake: cmake version 3.25.1"}}, "needs CMake 3.31, the one on PATH is 3.25.1"),
        ({"tools": {n: t for n, t in TOOLS.items() if n != "nvcc"}}, "no nvcc"),
        ({"tools": {**TOOLS, "nvcc": "/x/nvcc: Cuda compilation tools, release 12.6, V12.6.20"}}, "cannot compile for sm_120"),
        ({"tools": {**TOOLS, "nvcc": "/x/nvcc: Cuda compilation tools, release 12.9, V12.9.1"}}, "of CUDA 12, torch of CUDA 13"),
    ],
)
def test_tools_that_are_too_old(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    found = result("116", given(tree(tmp_path), environment(**COMPLETE), **changes)).findings
    assert any(words in f.title for f in found)


@pytest.mark.parametrize(
    ("requirement", "installed", "why"),
    [
        ("torch==2.14.1", "2.14.1+cu130", None),
        ("torch==2.14.1", "2.14.0", "installed is 2.14.0"),
        ("torch>=2.6,<3", "2.14.0", None),
        ("torch~=2.14.0", "2.15.0", "installed is 2.15.0"),
        ("torch==2.14.*", "2.14.9", None),
        ("Torch[cuda] >= 2 ; python_version > '3'", "2.14.0", None),
        ("other", "2.14.0", "absent"),
    ],
)
def test_requirements(requirement: str, installed: str, why: str | None) -> None:
    assert unmet(requirement, environment(torch=installed)) == why


def library(*targets: Target) -> Library:
    return Library(
        path="/v/lib/python3.12/site-packages/sgl_kernel/sm100/common_ops.abi3.so",
        size_bytes=1,
        images=tuple(Images(t, 1, 1, 1) for t in targets),
        units=(Unit(targets, 1),),
    )


@pytest.mark.parametrize(("target", "status"), [(Target("cubin", 120, "a"), "finding"), (Target("cubin", 90, "a"), "ok")])
def test_a_build_that_nobody_needs(tmp_path: Path, target: Target, status: str) -> None:
    case = given(tree(tmp_path), environment(**COMPLETE, sglang_kernel="0.4.10"), libraries=ok((library(target),)))
    found = result("138", case)
    assert found.status == status
    said = found.findings[0].next_steps[0] if found.findings else found.detail
    assert "MAX_JOBS=21" in said


def test_jobs_are_as_many_as_the_memory_allows() -> None:
    assert jobs(system()) == 21
    assert jobs(system(memory_bytes=ok(16 * GIB))) == 5
    assert jobs(system(), threads=32) == 21
    assert jobs(system(cgroup=ok(Cgroup(memory_bytes=2 * GIB, pids=None, path="/")))) == 1


def test_versions_that_tools_print() -> None:
    read = {tool: tool_version(system(tools=TOOLS), tool) for tool in TOOLS}
    assert read == {"nvcc": (13, 0), "cmake": (3, 31, 2), "ninja": (1, 13, 0), "g++": (12, 2, 0)}


def test_compilers_for_kernels_that_are_made_while_serving(tmp_path: Path) -> None:
    case = given(tree(tmp_path), environment(flashinfer_python="0.7.4"), tools={"g++": TOOLS["g++"]})
    assert {f.title for f in result("117", case).findings} == {
        "flashinfer-python compiles kernels at run time and there is no nvcc",
        "flashinfer-python compiles kernels at run time and there is no ninja",
    }
    prebuilt = given(tree(tmp_path), environment(flashinfer_python="0.7.4", flashinfer_jit_cache="0.7.4+cu130"), tools={})
    assert result("117", prebuilt).status == "skipped"


def test_reported_combinations(tmp_path: Path) -> None:
    both = given(tree(tmp_path), environment(sglang="0.5.23", vllm="0.33.0"))
    (found,) = result("122", both).findings
    assert (found.severity, found.confidence) == ("warning", "weak")
    nccl = environment(nvidia_nccl_cu13="2.30.5")
    assert result("122", given(tree(tmp_path), nccl)).status == "ok"
    blackwell = Asked(python="/p", gpus_for=("10.0",))
    case = facts(blackwell, install=ok(Install(python="/p", environment=ok(nccl))))
    assert "Reported with NCCL 2.30.5" in result("122", case).findings[0].title
