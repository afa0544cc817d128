"""Libraries that extensions need, found as the loader finds them: held against ldd on programs and libraries made here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag.doctor import nccl_library
from gpudiag.doctor.loader import Loader, dynamic
from gpudiag.doctor.needed import needed
from gpudiag.doctor.reads import Root
from gpudiag.model.facts import Asked, Facts
from gpudiag.model.install import Distribution, Environment, Install, NcclLibrary, Needed, Package, Unresolved
from tests.doctor.machines import facts, ok, result

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("ldd") is None, reason="needs gcc and ldd")


def build(path: Path, *options: str, soname: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-Wl,--no-as-needed", "-o", str(path)]
    command += [f"-Wl,-soname,{soname or path.name}", "-x", "none", *options]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return path


def by_ldd(path: Path | str, variables: dict[str, str]) -> dict[str, str | None]:
    """The file behind each name, None for 'not found'; without what the file needs only indirectly."""
    said = subprocess.run(
        ["ldd", str(path)], env={"PATH": os.environ["PATH"], **variables}, capture_output=True, text=True
    ).stdout
    found: dict[str, str | None] = {}
    for line in said.splitlines():
        name, arrow, target = line.strip().partition(" => ")
        if arrow:
            found[name] = None if target == "not found" else os.path.realpath(target.rpartition(" (")[0])
    return found


def by_us(path: Path | str, variables: dict[str, str]) -> dict[str, str | None]:
    asks = dynamic(str(path))
    assert asks is not None
    loader = Loader(Root(), variables)
    hits = {name: loader.find(name, asks) for name in asks.needed}
    return {name: os.path.realpath(hit[0]) if hit else None for name, hit in hits.items()}


@pytest.mark.parametrize("program", ["/bin/sh", "/bin/ls", shutil.which("gcc") or "", os.path.realpath(sys.executable)])
def test_programs_of_this_machine(program: str) -> None:
    theirs, ours = by_ldd(program, {}), by_us(program, {})
    assert ours
    assert {name: theirs[name] for name in ours if name in theirs} == {name: ours[name] for name in ours if name in theirs}


@pytest.mark.parametrize("tag", ["--disable-new-dtags", "--enable-new-dtags"], ids=["rpath", "runpath"])
@pytest.mark.parametrize("variable", [True, False])
def test_rpath_comes_before_the_variable_and_runpath_after_it(tag: str, variable: bool, tmp_path: Path) -> None:
    beside, elsewhere = (build(tmp_path / d / "libpart.so.1") for d in ("lib", "elsewhere"))
    user = build(tmp_path / "bin" / "libuser.so", str(beside), f"-Wl,{tag},-rpath,$ORIGIN/../lib")
    variables = {"LD_LIBRARY_PATH": str(elsewhere.parent)} if variable else {}
    ours = by_us(user, variables)
    assert ours["libpart.so.1"] == by_ldd(user, variables)["libpart.so.1"]
    assert ours["libpart.so.1"] == str(elsewhere if variable and "enable" in tag else beside)


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    gone = build(tmp_path / "libgone.so.7")
    user = build(tmp_path / "bin" / "libuser.so", str(gone))
    gone.unlink()
    assert by_us(user, {})["libgone.so.7"] is None
    assert by_ldd(user, {})["libgone.so.7"] is None


@pytest.mark.parametrize("cache", [b"", b"glibc-ld.so.cache1.1", b"glibc-ld.so.cache1.1" + b"\xff" * 100])
def test_a_cache_that_does_not_parse_finds_nothing(cache: bytes, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "ld.so.cache").write_bytes(cache)
    assert Loader(Root(tmp_path), {}).find("libc.so.6") is None


def environment(site: Path, *names: str) -> Environment:
    packages = tuple(
        Package(name=n, origin=str(site / n / "__init__.py"), locations=(str(site / n),)) for n in names if (site / n).is_dir()
    )
    return Environment(
        python=sys.executable,
        version="3.12.3",
        prefix="/",
        path=(str(site),),
        extension_suffixes=(),
        distributions=(Distribution(name="nvidia-nccl-cu13", version="2.28.9", where=str(site / "nccl.dist-info")),),
        packages=packages,
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """SGLang's kernels built for CUDA 12 beside a torch for CUDA 13."""
    site = tmp_path / "site-packages"
    parts = [build(tmp_path / "build" / name) for name in ("libcudart.so.12", "libtorch.so", "libcuda.so.1")]
    build(site / "nvidia" / "cu13" / "lib" / "libcudart.so.13")
    build(site / "torch" / "lib" / "libtorch.so")
    build(site / "sgl_kernel" / "flash_ops.abi3.so", *map(str, parts))
    (site / "sgl_kernel" / "notes.so").write_text("no library")
    (site / "sgl_kernel" / "empty.so").touch()
    return site


def found_in(about: Environment, looked: Needed) -> Facts:
    install = Install(python=about.python, environment=ok(about), needed=ok(looked))
    return facts(Asked(python=about.python, depth="fast"), install=ok(install))


def test_kernels_of_another_cuda_are_named_before_anything_runs(site: Path) -> None:
    about = environment(site, "sgl_kernel", "torch")
    looked = needed(about, Loader(Root(), {}))
    path = os.path.realpath(site / "sgl_kernel" / "flash_ops.abi3.so")
    assert looked.missing == (Unresolved(path=path, name="libcudart.so.12", instead=("libcudart.so.13",)),)
    assert looked.extensions == 1
    (made,) = result("203", found_in(about, looked)).findings
    assert "sgl_kernel/flash_ops.abi3.so needs libcudart.so.12" in made.title
    assert "has libcudart.so.13" in made.title
    assert (made.severity, made.confidence, made.culprits[0].path) == ("warning", "proven", path)


def test_what_the_engine_does_not_start_without_is_an_error_and_named_first(site: Path) -> None:
    shutil.copy(site / "sgl_kernel" / "flash_ops.abi3.so", site / "sgl_kernel" / "common_ops.abi3.so")
    about = environment(site, "sgl_kernel", "torch")
    (made,) = result("203", found_in(about, needed(about, Loader(Root(), {})))).findings
    assert made.title.startswith("sgl_kernel/common_ops.abi3.so needs")
    assert made.severity == "error"


def test_nothing_missing_is_well_without_an_import(site: Path) -> None:
    about = environment(site, "sgl_kernel", "torch")
    build(site / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.12")
    ended = result("203", found_in(about, needed(about, Loader(Root(), {}))))
    assert (ended.status, ended.detail) == ("ok", "1 extension: every library that their headers name is there")


def test_the_nccl_that_torch_loads(site: Path, tmp_path: Path) -> None:
    own = build(site / "nvidia" / "nccl" / "lib" / "libnccl.so.2")
    build(site / "torch" / "lib" / "libtorch_cuda.so", str(own), "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../nvidia/nccl/lib")
    system = build(tmp_path / "usr" / "libnccl.so.2.18.5", soname="libnccl.so.2")
    (system.parent / "libnccl.so.2").symlink_to(system.name)
    about = environment(site, "torch", "vllm")
    (wheel,) = nccl_library.libraries(about, {})
    assert (wheel.path, wheel.version, wheel.by) == (str(own), "2.28.9", "RUNPATH of libtorch_cuda.so")
    (shadowed,) = nccl_library.libraries(about, {"LD_LIBRARY_PATH": str(system.parent)})
    assert (shadowed.version, shadowed.by) == ("2.18.5", "LD_LIBRARY_PATH")
    assert nccl_library.path(about, {}) == str(own)
    assert nccl_library.path(None, {}) == "libnccl.so.2"


def test_two_libraries_of_nccl_in_one_process(site: Path) -> None:
    about = environment(site)
    torch = NcclLibrary(user="torch", path="/venv/libnccl.so.2", by="RPATH of libtorch_cuda.so", version="2.28.9")
    vllm = NcclLibrary(user="vllm", path="/opt/libnccl.so.2", by="VLLM_NCCL_SO_PATH")

    def case(*loaded: NcclLibrary) -> Facts:
        install = Install(python=about.python, environment=ok(about), nccl=ok(loaded))
        return facts(install=ok(install), environment={"VLLM_NCCL_SO_PATH": "/opt/libnccl.so.2"})

    (made,) = result("112", case(torch, vllm)).findings
    assert "gives vllm another NCCL (/opt/libnccl.so.2) than torch loads (2.28.9, /venv/libnccl.so.2)" in made.title
    assert result("112", case(torch)).status == "ok"
