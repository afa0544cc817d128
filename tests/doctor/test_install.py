"""What is wrong with an install, seen through its own interpreter: each case is a real environment that is broken."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudiag.doctor import facts, install, probe
from gpudiag.model.doctor import CheckResult
from gpudiag.model.facts import Asked, Facts
from gpudiag.model.install import Import
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.rules.install.import_fails import kind
from gpudiag.rules.preflight import registry
from tests.doctor.checkpoints import target
from tests.doctor.site import Site, make

MODEL = "vllm/model_executor/models/kimi.py"
CLEAN = {
    "vllm/__init__.py": "",
    "vllm/model_executor/models/kimi.py": "from vllm.base import (\n    Base,\n)\n\n\nclass Kimi(Base):\n    pass\n",
    "vllm/base.py": "class Base:\n    pass\n",
}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make(tmp_path / "venv")


def read(site: Site, depth: str = "fast") -> Facts:
    return facts.read(Asked(python=site.python, depth="deep" if depth == "deep" else "fast"))


def result(code: str, given: Facts) -> CheckResult:
    check = registry.check(code)
    assert check is not None
    return check.run(given)


def test_a_clean_install_has_no_finding(site: Site) -> None:
    site.install("vllm", "0.33.0", CLEAN)
    given = read(site)
    assert isinstance(given.install, Ok)
    for code in ("104", "105", "106", "134", "135", "124"):
        assert result(code, given).status == "ok", (code, result(code, given))


def test_an_edited_file_that_no_longer_compiles_is_found_with_line_and_fix(site: Site) -> None:
    site.install("vllm", "0.33.0", CLEAN)
    (site.packages / MODEL).write_text("from vllm.base import (\n    Base,\n\n\nclass Kimi(Base):\n    pass\n")
    given = read(site)
    (fault,) = result("106", given).findings
    assert fault.culprits[0].file == str(site.packages / MODEL)
    assert fault.culprits[0].line is not None
    assert "import that begins on line 1 is not closed" in fault.next_steps[0]
    assert "1 from vllm.base import (" in fault.evidence[0].excerpt
    (edited,) = result("105", given).findings
    assert (edited.severity, "vllm==0.33.0" in edited.next_steps[1]) == ("warning", True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("from vllm.base import Base,\n", "without brackets"),
        ("<<<<<<< ours\nx = 1\n=======\nx = 2\n>>>>>>> theirs\n", "merge conflict"),
        ("def f():\nreturn 1\n", "indentation of line 2"),
        ("x = (1,\n", "close the bracket"),
        ("x = 1\n+ def f(): pass\n", "diff was pasted"),
    ],
)
def test_the_likely_fix_names_the_usual_mistake(site: Site, text: str, words: str) -> None:
    site.install("vllm", "0.33.0", CLEAN)
    (site.packages / MODEL).write_text(text)
    (fault,) = result("106", read(site)).findings
    assert words in fault.next_steps[0]


def test_same_size_other_content(site: Site) -> None:
    site.install("vllm", "0.33.0", CLEAN)
    base = site.packages / "vllm/base.py"
    base.write_text(base.read_text().replace("pass", "...#"))
    assert "base.py" in result("105", read(site)).findings[0].title


def test_a_library_of_the_same_size_shows_only_when_every_byte_is_read(site: Site) -> None:
    site.install("vllm", "0.33.0", {**CLEAN, "vllm/_C.abi3.so": "1234"})
    (site.packages / "vllm/_C.abi3.so").write_text("4321")
    install_of = install.describe(site.python)
    assert isinstance(install_of.environment, Ok)
    shallow, deep = (install.verify(site.python, ["vllm"], deep=d) for d in (False, True))
    assert isinstance(shallow, Ok)
    assert isinstance(deep, Ok)
    assert ([c.change for c in shallow.value.changes], [c.change for c in deep.value.changes]) == ([], ["modified"])


def test_missing_and_added_files(site: Site) -> None:
    site.install("sglang", "0.5.23", {"sglang/__init__.py": "", "sglang/srt/models/kimi.py": "", "sglang/gone.py": ""})
    (site.packages / "sglang/gone.py").unlink()
    (site.packages / "sglang/srt/models/kimi_old.py").write_text("")
    found = {f.severity: f for f in result("134", read(site)).findings}
    assert "gone.py" in found["error"].title
    assert "kimi_old.py" in found["warning"].title
    assert "imports every file" in found["warning"].next_steps[0]


def phantom(site: Site, tree: Path) -> None:
    """What an editable build of sgl-kernel's layout leaves: the source on the path, the library in site-packages."""
    (tree / "sgl_kernel").mkdir(parents=True)
    (tree / "sgl_kernel/__init__.py").write_text("")
    site.install("sglang-kernel", "0.4.10", {"sgl_kernel/sm100/common_ops.abi3.so": "built"}, editable=str(tree))


def test_a_build_that_will_not_be_loaded(site: Site, tmp_path: Path) -> None:
    phantom(site, tmp_path / "tree")
    loaded = subprocess.run(
        [site.python, "-c", "import sgl_kernel; print(sgl_kernel.__file__)"], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.startswith(str(tmp_path / "tree"))
    (found,) = result("104", read(site)).findings
    assert "will not be loaded" in found.title
    assert found.culprits[0].path == str(site.packages / "sgl_kernel/sm100/common_ops.abi3.so")
    assert "not -e" in found.next_steps[0]


def test_the_same_build_installed_plainly_is_loaded(site: Site) -> None:
    site.install("sglang-kernel", "0.4.10", {"sgl_kernel/__init__.py": "", "sgl_kernel/sm100/common_ops.abi3.so": "built"})
    found = result("104", read(site))
    assert (found.status, "common_ops.abi3.so" in found.detail) == ("ok", True)


def test_a_newer_build_in_the_tree_and_two_of_one_name(site: Site, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for path in ("sgl_kernel/__init__.py", "sgl_kernel/sm100/common_ops.abi3.so", "build/common_ops.abi3.so"):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text("")
    old = tree / "sgl_kernel/sm100/common_ops.abi3.so"
    os.utime(old, (1_000_000_000, 1_000_000_000))
    (old.parent / "common_ops.cpython-39-x86_64-linux-gnu.so").write_text("")
    site.install("sglang-kernel", "0.4.10", {}, editable=str(tree))
    titles = " | ".join(f.title for f in result("104", read(site)).findings)
    assert "newer build" in titles
    assert "built for another Python" in titles
    assert "whichever the directory lists first" in titles


def test_two_distributions_of_one_package(site: Site) -> None:
    site.install("sgl-kernel", "0.3.21", {"sgl_kernel/__init__.py": ""})
    site.install("sglang-kernel", "0.4.10", {"sgl_kernel/common_ops.abi3.so": ""})
    (found,) = result("135", read(site)).findings
    assert "sgl-kernel 0.3.21" in found.title
    assert "sglang-kernel 0.4.10" in found.title


def test_pins_that_are_not_met(site: Site) -> None:
    site.install("torch", "2.13.0", {"torch/__init__.py": "", "torch/version.py": "cuda: str = '13.0'\n"})
    site.install("vllm", "0.33.0", CLEAN, requires=("torch==2.14.0", "absent-thing>=1", 'never; python_version < "3"'))
    shutil.copytree(Path(packaging_directory()), site.packages / "packaging")
    given = read(site)
    assert isinstance(given.install, Ok)
    assert isinstance(given.install.value.environment, Ok)
    assert given.install.value.environment.value.torch_cuda == "13.0"
    (found,) = result("107", given).findings
    assert "torch==2.14.0 (2.13.0)" in found.title
    assert "never" not in found.evidence[0].excerpt


def packaging_directory() -> str:
    import packaging

    return str(Path(packaging.__file__).parent)


def test_without_a_parser_pins_are_unknown_and_not_met(site: Site) -> None:
    site.install("vllm", "0.33.0", CLEAN, requires=("torch==2.14.0",))
    assert result("107", read(site)).status == "unknown"


BROKEN: dict[str, tuple[dict[str, str], str, str]] = {
    "syntax": ({"a.py": "import b\n", "b.py": "def f(:\n"}, "GPD201", "b.py, line 1"),
    "masked": (
        {"a.py": "try:\n    import b\nexcept SyntaxError as e:\n    raise RuntimeError('x')\n", "b.py": "def f(:\n"},
        "GPD201",
        "b.py",
    ),
    "missing module": ({"a.py": "import nowhere_to_be_found\n"}, "GPD202", "nowhere_to_be_found"),
    "missing name": ({"a.py": "from b import gone\n", "b.py": ""}, "GPD205", "gone"),
    "crash": ({"a.py": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"}, "GPD217", "SIGSEGV"),
    "exit": ({"a.py": "import os\nos._exit(7)\n"}, "GPD217", "status 7"),
    "hang": ({"a.py": "import threading\nthreading.Event().wait()\n"}, "GPD227", "does not finish"),
    "raised": ({"a.py": "raise RuntimeError('no device')\n"}, "GPD220", "no device"),
    "library": ({"a.py": "import ctypes\nctypes.CDLL('libzz_none.so.9')\n"}, "GPD203", "libzz_none.so.9"),
    "fine": ({"a.py": "x = 1\n"}, "", ""),
}


@pytest.mark.parametrize("case", BROKEN)
def test_how_an_import_fails(site: Site, case: str) -> None:
    files, code, words = BROKEN[case]
    for name, text in files.items():
        (site.packages / name).write_text(text)
    found = install.imports(site.python, ["a"], limit_s=2.0 if case == "hang" else 20.0)
    assert isinstance(found, Ok), found
    (one,) = found.value
    assert (kind(one) or "") == code, one
    assert one.in_progress[:1] == (("a",) if code else ())
    if code:
        assert words in told(one, code)


def told(one: Import, code: str) -> str:
    from gpudiag.model.install import Install
    from tests.doctor.machines import facts as machine
    from tests.doctor.machines import ok

    given = machine(
        Asked(python="/p"), install=ok(Install(python="/p", environment=Unavailable(reason="", help=""), imports=ok((one,))))
    )
    return result(code, given).findings[0].title


def test_the_module_of_the_model_is_imported_even_where_the_engine_would_go_on_without_it(site: Site, tmp_path: Path) -> None:
    """SGLang says only 'Ignore import error', and serves the model with a generic class."""
    files = {
        "sglang/__init__.py": "",
        "sglang/srt/entrypoints/engine.py": "print('Ignore import error when loading sglang.srt.models.kimi: x')\n",
        "sglang/srt/models/kimi.py": "import sglang.nothing\n\n\nclass LlamaForCausalLM:\n    pass\n",
    }
    site.install("sglang", "0.5.23", files)
    given = facts.read(Asked(python=site.python, model=str(target(tmp_path / "m"))))
    assert isinstance(given.install, Ok)
    assert isinstance(given.install.value.imports, Ok)
    engine, model = given.install.value.imports.value
    assert (engine.outcome, model.module, model.outcome) == ("ok", "sglang.srt.models.kimi", "exception")
    assert engine.ignored == ("Ignore import error when loading sglang.srt.models.kimi: x",)
    assert "sglang.srt.models.kimi cannot be imported" in result("202", given).findings[0].title
    assert "go on without sglang.srt.models.kimi" in result("706", given).findings[0].title


def test_an_undefined_symbol_in_a_real_extension(site: Site) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = site.packages / "bad.c"
    source.write_text("extern int _ZN3c105ErrorE(void);\nvoid *PyInit_bad(void) { return _ZN3c105ErrorE() ? 0 : 0; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(site.packages / "bad.abi3.so"), str(source)], check=True, timeout=60)
    found = install.imports(site.python, ["bad"], limit_s=20.0)
    assert isinstance(found, Ok)
    assert kind(found.value[0]) == "GPD204"
    assert "_ZN3c105ErrorE" in told(found.value[0], "GPD204")


def test_a_python_that_is_none(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho oops >&2\nexit 3\n")
    script.chmod(0o755)
    answer = probe.run("describe_environment", [], python=str(script), limit_s=10)
    assert isinstance(answer, Failed)
    assert "status 3: oops" in answer.error
    assert isinstance(probe.run("describe_environment", [], python=str(tmp_path / "none"), limit_s=10), Unavailable)


def test_what_a_package_prints_does_not_spoil_the_answer(site: Site) -> None:
    (site.packages / "noisy.pth").write_text("import sys; print('hello from a .pth')\n")
    site.install("vllm", "0.33.0", CLEAN)
    assert isinstance(install.describe(site.python).environment, Ok)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="needs an interpreter that every user may run")
def test_another_users_interpreter_runs_as_that_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    nobody = 65534
    directory = tmp_path_factory.mktemp("theirs")
    site = make(directory / "venv", base="/usr/bin/python3")
    # pytest makes its directories for their owner alone.
    opened = [d for d in (directory, *directory.parents) if d.stat().st_mode & 0o777 == 0o700 and "pytest" in str(d)]
    for one in opened:
        one.chmod(0o711)
    os.lchown(site.python, nobody, nobody)
    answer_file = directory / "who"
    answer_file.touch()
    answer_file.chmod(0o666)
    (site.packages / "who.pth").write_text(f"import os; open({str(answer_file)!r}, 'a').write(str(os.geteuid()))\n")
    answer = probe.run("describe_environment", [], python=site.python, limit_s=30)
    assert isinstance(answer, Ok), answer
    assert set(answer_file.read_text().replace(str(nobody), "x")) == {"x"}
