"""Real Python programs to look at: started with one of the interpreters at hand, ready when they say so, ended by pid."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudiag.model.stack import Frame, PyStack

PROGRAMS = Path(__file__).parent / "programs"
DEADLINE_S = 30.0


def interpreters() -> dict[str, str]:
    """'major.minor' to executable: the running one, those of pyenv and those on PATH, of the versions gpudiag can read."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for path in sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python")):
        version = re.match(r"(3\.1[1234])\.\d+$", path.parent.parent.name)
        if version:
            found.setdefault(version[1], str(path))
    for name in ("3.11", "3.12", "3.13", "3.14"):
        on_path = shutil.which(f"python{name}")
        # A shim of pyenv starts whatever is chosen at the time, or nothing.
        if on_path and "/shims/" not in on_path:
            found.setdefault(name, on_path)
    return found


INTERPRETERS = interpreters()


@dataclass(frozen=True)
class Target:
    """A running program: its first line of output, parsed, is `said`."""

    pid: int
    version: tuple[int, int]
    said: Any

    @property
    def version_text(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"

    def stacks(self) -> tuple[PyStack, ...]:
        return dump(self.pid)


@contextlib.contextmanager
def running(version: str, program: str | Path, *arguments: str, cwd: str | None = None) -> Iterator[Target]:
    """Start `programs/PROGRAM`, wait for the JSON line it prints, and kill it at the end."""
    path = PROGRAMS / program
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COVERAGE"))}
    with subprocess.Popen(
        [INTERPRETERS[version], "-X", "utf8", str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=cwd,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
            assert ready, f"{path} did not say anything"
            major, minor = version.split(".")
            yield Target(process.pid, (int(major), int(minor)), json.loads(process.stdout.readline()))
        finally:
            process.kill()


def wait_until(condition: Any, what: str) -> None:
    """Poll a condition of /proc; fail after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never saw {what}"
        os.sched_yield()


def futex_sleepers(pid: int) -> int:
    count = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/syscall") as file:
            count += file.read().startswith(("202 ", "98 ") if os.uname().machine == "x86_64" else "98 ")
    return count


def dump(pid: int) -> tuple[PyStack, ...]:
    """Stacks as py-spy sees them, without stopping the target; torn reads are tried again."""
    options = ["--json", "--nonblocking", "--full-filenames", "-lll", "--pid", str(pid)]
    command = [str(Path(sys.executable).parent / "py-spy"), "dump", *options]
    for _ in range(20):
        result = subprocess.run(command, capture_output=True, timeout=DEADLINE_S)
        if result.returncode == 0:
            return tuple(_stack(thread) for thread in json.loads(result.stdout))
    raise AssertionError(result.stderr.decode())


def _stack(thread: dict[str, Any]) -> PyStack:
    frames = tuple(
        Frame(
            function=frame["name"],
            file=frame["filename"],
            line=frame["line"],
            locals={local["name"]: local["addr"] for local in frame["locals"] or ()},
        )
        for frame in thread["frames"]
    )
    return PyStack(
        tid=thread["os_thread_id"],
        name=thread["thread_name"],
        ident=thread["thread_id"],
        active=thread["active"],
        owns_gil=thread["owns_gil"],
        frames=frames,
    )
