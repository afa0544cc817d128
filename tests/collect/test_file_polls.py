"""file_polls against real loops, in every interpreter at hand."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudiag.collect.file_polls import file_polls
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.python_target import UnsupportedPythonError
from gpudiag.model.stack import FilePoll, PyStack
from tests.collect.targets import DEADLINE_S, INTERPRETERS, Target, running

VERSIONS = sorted(INTERPRETERS)


def look(target: Target, stacks: tuple[PyStack, ...]) -> tuple[FilePoll, ...]:
    with TargetMemory(target.pid) as memory:
        return file_polls(target.pid, target.version_text, stacks, memory)


def settles(target: Target, function: str, expected: set[tuple[str, str, str]]) -> None:
    """Look until a thread is in the function and what is found is what should be; a poll in between two lines is missed."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        stacks = target.stacks()
        found = {(poll.path, poll.until, poll.expression) for poll in look(target, stacks)}
        there = any(frame.function.endswith(function) for stack in stacks for frame in stack.frames)
        if (there and found == expected) or time.monotonic() > deadline:
            break
    assert there
    assert found == expected


POLLS: dict[str, Callable[[str], tuple[str, str, str]]] = {
    "baton": lambda path: (path, "gone", "self.lock_file_path"),
    "local": lambda path: (path + ".done", "exists", "name"),
    "module_variable": lambda _: ("/nonexistent/gpudiag/module", "exists", "MISSING"),
    "pathlib_path": lambda path: (path + "/sub/file", "exists", "wanted"),
    "joined": lambda path: (path + "-build/lock", "exists", "os.path.join(build['directory'], 'lock')"),
    "formatted": lambda path: (path + ".rank3", "exists", "f'{path}.rank{rank}'"),
    "relative": lambda path: (f"{Path(path).parent}/some/where/flag", "exists", "'some/where/flag'"),
    "by_exception": lambda path: (path + ".never", "exists", "path + '.never'"),
    "exclusive": lambda path: (path, "gone", "path"),
    "event_sleep": lambda path: (path, "gone", "path"),
    "closure": lambda path: (path, "gone", "path"),
}


@pytest.mark.parametrize("scenario", sorted(POLLS))
@pytest.mark.parametrize("version", VERSIONS)
def test_the_file_that_a_loop_waits_for(version: str, scenario: str, tmp_path: Path) -> None:
    path = tmp_path / "lock \u00e9\U0001f512"
    path.touch()
    with running(version, "polls.py", scenario, str(path), cwd=str(tmp_path)) as target:
        settles(target, {"baton": "Baton.wait"}.get(scenario, scenario), {POLLS[scenario](str(path))})


@pytest.mark.parametrize(("scenario", "frame"), [("working", "step"), ("store", "store"), ("asleep", "asleep")])
@pytest.mark.parametrize("version", VERSIONS)
def test_no_file_where_none_is_waited_for(version: str, scenario: str, frame: str, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with running(version, "polls.py", scenario, str(path)) as target:
        looks = 0
        while looks < 5:
            stacks = target.stacks()
            if any(f.function == frame for stack in stacks for f in stack.frames):
                looks += 1
                assert look(target, stacks) == ()


@pytest.mark.parametrize("kind", ["SoftFileLock", "UnixFileLock"])
@pytest.mark.parametrize(("file", "method"), [("_api.py", "acquire"), ("_core/_acquire.py", "_poll_until_acquired")])
def test_filelock_waits_for_its_file_to_be_gone_or_to_be_unlocked(file: str, method: str, kind: str, tmp_path: Path) -> None:
    stand_in(tmp_path, f"filelock/{file}", FILELOCK.format(method=method))
    name = f"filelock.{file.removesuffix('.py').replace('/', '.')}"
    program = tmp_path / "program.py"
    program.write_text(f"from {name} import {kind}\nprint('0', flush=True)\n{kind}('held.lock').{method}()\n")
    with running(VERSIONS[-1], program, cwd=str(tmp_path)) as target:
        until = "gone" if kind == "SoftFileLock" else "unlocked"
        settles(target, method, {(f"{tmp_path}/held.lock", until, "self.lock_file")})


def test_the_lock_of_tvm_ffi_is_polled_until_it_is_free(tmp_path: Path) -> None:
    stand_in(tmp_path, "tvm_ffi/utils/lockfile.py", TVM_LOCK)
    program = tmp_path / "program.py"
    program.write_text(
        "from tvm_ffi.utils.lockfile import FileLock\nprint('0', flush=True)\nFileLock('held.lock').blocking_acquire()\n"
    )
    with running(VERSIONS[-1], program, cwd=str(tmp_path)) as target:
        settles(target, "blocking_acquire", {(f"{tmp_path}/held.lock", "unlocked", "self.lock_file_path")})


def stand_in(directory: Path, file: str, text: str) -> None:
    """Write a module of a package that comes before an installed one of that name."""
    module = directory / file
    module.parent.mkdir(parents=True)
    module.write_text(text)
    for package in module.relative_to(directory).parents[:-1]:
        (directory / package / "__init__.py").touch()


TVM_LOCK = """
import time


class FileLock:
    def __init__(self, lock_file_path):
        self.lock_file_path = lock_file_path

    def acquire(self):
        return False

    def blocking_acquire(self, timeout=None, poll_interval=0.005):
        while True:
            if self.acquire():
                return True
            time.sleep(poll_interval)
"""
"""The loop of apache-tvm-ffi 0.1.11 as far as it shows from outside: where it is and what its attribute is called."""
FILELOCK = """
import time


class BaseFileLock:
    def __init__(self, lock_file):
        self.lock_file = lock_file

    def {method}(self, poll_interval=0.005):
        lock_filename = self.lock_file
        while True:
            time.sleep(poll_interval)


class SoftFileLock(BaseFileLock):
    pass


class UnixFileLock(BaseFileLock):
    pass
"""
"""The loops of filelock 3.18 and 4.3 as far as they show from outside: where they are and what their locals are called."""


def test_a_python_that_cannot_be_read_is_said_so() -> None:
    with TargetMemory(os.getpid()) as memory, pytest.raises(UnsupportedPythonError, match=r"not for 3\.10"):
        file_polls(os.getpid(), "3.10.2", (), memory)
