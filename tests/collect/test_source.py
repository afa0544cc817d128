"""The source of a frame: found in files as they are, refused where it is not the code that runs, safe to open."""

from __future__ import annotations

import ast
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudiag.collect import source_files
from gpudiag.collect.source import Function, SourceFile, Unreadable, find_function
from gpudiag.collect.source_files import SourceFiles


def parsed(text: str) -> SourceFile:
    lines = textwrap.dedent(text).split("\n")
    return SourceFile(lines, sum(map(len, lines)))


def line_of(file: SourceFile, marker: str) -> int:
    return next(i for i, text in enumerate(file.lines, 1) if marker in text)


def name_at(file: SourceFile, qualname: str, marker: str) -> str:
    line = line_of(file, marker)
    block = file.block(qualname, line)
    found = block if isinstance(block, Unreadable) else block.function(qualname, line)
    if isinstance(found, Unreadable):
        return found.reason
    assert not isinstance(found.node, ast.Module)
    assert found.node.lineno <= line <= (found.node.end_lineno or 0)
    return ".".join(node.name for node in (*found.enclosing, found.node))


NESTED = parsed(
    '''
    class A:
        def m(
            self,
            x,
        ):
            text = """
    def m(broken
        """
            def inner(y):
                return [  # in inner
    y
                ]
            return inner  # in m

        async def other(self):
            pass  # in other

    class B:
        def m(self):
            pass  # in the other m

    def m():
        def m():
            pass  # in the innermost m
        return m  # in the outer m

    if True:
        def conditional():
            pass  # in conditional
    '''
)


@pytest.mark.parametrize(
    ("qualname", "marker", "name"),
    [
        ("A.m", "# in m", "m"),
        ("A.m.<locals>.inner", "# in inner", "m.inner"),
        ("A.m.<locals>.inner", "y\n", "m.inner"),
        ("A.other", "# in other", "other"),
        ("B.m", "# in the other m", "m"),
        ("m", "# in the outer m", "m"),
        ("m.<locals>.m", "# in the innermost m", "m.m"),
        ("conditional", "# in conditional", "conditional"),
    ],
)
def test_the_function_of_a_frame_is_found_by_name_and_line(qualname: str, marker: str, name: str) -> None:
    assert name_at(NESTED, qualname, marker.strip("\n")) == name


@pytest.mark.parametrize(
    "qualname", ["A.other", "m", "A", "nothing", "A.m.<locals>.<lambda>", "A.m.<locals>.<genexpr>", "", "a b", "x" * 2000]
)
def test_a_line_outside_the_named_function_is_refused(qualname: str) -> None:
    line = line_of(NESTED, "# in m")
    block = NESTED.block(qualname, line)
    assert isinstance(block if isinstance(block, Unreadable) else block.function(qualname, line), Unreadable)


@pytest.mark.parametrize("line", [-1, 0, 10_000])
def test_a_line_that_the_file_does_not_have_is_refused(line: int) -> None:
    assert isinstance(NESTED.block("A.m", line), Unreadable)


def test_every_function_of_real_modules_is_found_without_parsing_the_file() -> None:
    """The block of a function has to be the function, in whatever style a module is written."""
    for module in (threading, inspect, subprocess, textwrap, ast):
        text = Path(module.__file__ or "").read_text()
        file = SourceFile(text.split("\n"), len(text))
        whole = ast.parse(text)
        checked = 0
        for qualname, node in functions(whole, ""):
            line = node.body[-1].lineno
            block = file.block(qualname, line)
            assert not isinstance(block, Unreadable)
            found = block.function(qualname, line)
            assert isinstance(found, Function)
            assert not isinstance(found.node, ast.Module)
            # A block starts at `def`: no frame stands in the decorators of its own function.
            found.node.decorator_list = node.decorator_list = []
            assert ast.dump(found.node, include_attributes=True) == ast.dump(node, include_attributes=True)
            checked += 1
        assert checked > 10


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from functions(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        else:
            yield from functions(child, prefix)


def test_line_numbers_of_a_block_are_those_of_the_file() -> None:
    file = parsed("\n\n\nclass A:\n    def m(self):\n        pass\n")
    block = file.block("A.m", 6)
    assert not isinstance(block, Unreadable)
    found = block.function("A.m", 6)
    assert isinstance(found, Function)
    assert (found.node.lineno, found.node.body[0].lineno) == (5, 6)  # type: ignore[union-attr]


def test_code_outside_functions_is_the_module() -> None:
    found = find_function(ast.parse("x = 1\n"), "<module>", 1)
    assert isinstance(found, Function)
    assert isinstance(found.node, ast.Module)


@pytest.mark.parametrize(
    "text",
    [
        "def f(:\n    pass\n",
        "def f():\n    x = '\n",
        "def f():\n    \0\n",
        "def f():\n    x = " + "(" * 300 + "\n",
        "def f():\n  x = " + "-" * 99999 + "1\n",
    ],
)
def test_source_that_does_not_parse_is_a_reason(text: str) -> None:
    file = SourceFile(text.split("\n"), len(text))
    block = file.block("f", 2)
    found = block if isinstance(block, Unreadable) else block.function("f", 2)
    assert isinstance(found, Unreadable)


def test_deeply_nested_source_is_a_reason() -> None:
    text = "def f():\n    if a:\n        pass\n" + "    elif b:\n        pass\n" * 3000
    file = SourceFile(text.split("\n"), len(text))
    block = file.block("f", 6000)
    assert not isinstance(block, Unreadable)
    assert isinstance(block.function("f", 6000), Unreadable)


@contextmanager
def process(*command: str) -> Iterator[int]:
    with subprocess.Popen(command or ["cat"], stdin=subprocess.PIPE) as child:
        try:
            yield child.pid
        finally:
            child.kill()


def reason(pid: int, path: str, qualname: str = "f", line: int = 2) -> str:
    found = SourceFiles(pid).function(path, qualname, line)
    return found.reason if isinstance(found, Unreadable) else "found"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text("def f():\n    pass\n")
    return path


def test_a_file_of_the_target_is_read(program: Path) -> None:
    with process() as pid:
        assert reason(pid, str(program)) == "found"
        assert reason(pid, str(program), "g") == "the line is not inside the function: the source is not the code that runs"


def test_a_relative_file_starts_at_the_working_directory(program: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=program.parent) as child:
        try:
            assert reason(child.pid, program.name) == "found"
        finally:
            child.kill()


def test_a_file_that_changed_after_the_start_is_refused(program: Path) -> None:
    with process() as pid:
        later = time.time() + 5
        os.utime(program, (later, later))
        assert reason(pid, str(program)) == "the source changed after the process started"


def test_a_changed_file_is_read_again(program: Path) -> None:
    with process() as pid:
        assert reason(pid, str(program)) == "found"
        before = program.stat().st_mtime
        program.write_text("def g():\n    pass  # longer\n")
        os.utime(program, (before, before))
        assert reason(pid, str(program)) != "found"


def test_a_file_that_is_not_there_or_not_text_is_a_reason(tmp_path: Path) -> None:
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00" * 100)
    unknown = tmp_path / "unknown.py"
    unknown.write_bytes(b"# coding: no-such-encoding\n")
    with process() as pid:
        assert reason(pid, str(tmp_path / "missing.py")) == "cannot open the source: No such file or directory"
        assert reason(pid, str(binary)) == "the source is not text"
        assert reason(pid, str(unknown)) == "the source is not text"
        for path in ("<frozen importlib._bootstrap>", "<string>", "/etc/passwd", "", "x\0.py", "\udcff\ud800.py"):
            assert reason(pid, path) != "found"


def test_a_latin_1_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# coding: latin-1\r\ndef f():\r\n    return '\xe9'\r\n")
    with process() as pid:
        assert reason(pid, str(path), line=3) == "found"


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.py"
    with path.open("wb") as file:
        file.truncate(source_files.SIZE_LIMIT + 1)
    with process() as pid:
        assert reason(pid, str(path)) == "the source is larger than 4 MiB"


@pytest.mark.timeout(20)
def test_a_fifo_in_place_of_a_file_does_not_block(program: Path) -> None:
    with process() as pid:
        program.unlink()
        os.mkfifo(program)
        assert reason(pid, str(program)) == "cannot open the source: not a regular file"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty", "/proc/kmsg", "/proc/self/environ"])
@pytest.mark.timeout(20)
def test_a_link_to_what_is_no_source_is_not_opened(program: Path, device: str) -> None:
    with process() as pid:
        program.unlink()
        program.symlink_to(device)
        assert reason(pid, str(program)).startswith("cannot open the source")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change a root directory")
def test_links_do_not_lead_out_of_the_root_of_the_target(tmp_path: Path) -> None:
    inside, outside = tmp_path / "root", tmp_path / "outside.py"
    (inside / "sub").mkdir(parents=True)
    outside.write_text("def f():\n    pass\n")
    (inside / "real.py").write_text("def f():\n    pass\n")
    (inside / "sub" / "absolute.py").symlink_to(outside)
    (inside / "sub" / "upwards.py").symlink_to("../../../../outside.py")
    (inside / "sub" / "good.py").symlink_to("/real.py")
    (inside / "sub" / "circle.py").symlink_to("circle.py")
    code = "import os, sys; os.chroot(sys.argv[1]); os.chdir('/sub'); print(flush=True); os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", code, str(inside)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"\n"
            assert reason(child.pid, "/sub/good.py") == "found"
            assert reason(child.pid, "good.py") == "found"
            for path in (
                "/sub/absolute.py",
                "/sub/upwards.py",
                "/sub/circle.py",
                str(outside),
                "/../outside.py",
                "../../outside.py",
            ):
                assert reason(child.pid, path) != "found", path
        finally:
            child.kill()


def test_a_target_that_is_gone_is_a_reason(program: Path) -> None:
    with process() as pid:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert reason(pid, str(program)).startswith("cannot open the source")


def test_functions_that_mention_nothing_of_interest_are_not_parsed(program: Path) -> None:
    with process() as pid:
        files = SourceFiles(pid)
        found = files.function(str(program), "f", 2, ("pass", "other"), ("with ",))
        assert found == Unreadable("nothing of interest in it")
        assert isinstance(files.function(str(program), "f", 2, ("pass", "other")), Function)


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_texts_are_kept_up_to_a_size(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small files count for something, too: nobody says how many a target has."""
    monkeypatch.setattr(source_files, "_cache", {})
    text = "#" * size + "\ndef f():\n    pass\n"
    paths = [tmp_path / f"program{i}.py" for i in range(300 if size == 0 else 6)]
    for path in paths:
        path.write_text(text)
    with process() as pid:
        files = SourceFiles(pid)
        assert all(isinstance(files.function(str(path), "f", 3), Function) for path in paths)
    assert len(source_files._cache) == (256 if size == 0 else 3)


def test_the_source_of_one_process_is_parsed_up_to_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "_PARSE_BUDGET", 200)
    text = "def f():\n    pass\n" + "".join(f"def f{i}():\n    pass\n" for i in range(30))
    path = tmp_path / "program.py"
    path.write_text(text)
    with process() as pid:
        files = SourceFiles(pid)
        found = [files.function(str(path), f"f{i}", 4 + 2 * i) for i in range(30)]
        assert isinstance(found[0], Function)
        assert found[-1] == Unreadable("too much source to parse")
