"""Small real processes for the tests of collect: started from a few lines of Python, ready when they say so."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from gpudiag.model.process import Process
from gpudiag.model.snapshot import Snapshot
from tests.support.processes import wait_until

START_S = 30.0

PRELUDE = """
import json, os, sys, threading

def ready(*said):
    print(json.dumps(said), flush=True)

def wait():
    sys.stdin.read()
"""


SERVER = """
import subprocess
lock = threading.Lock()
def work():
    with lock:
        wait()
def want():
    with lock:
        pass
worker = threading.Thread(target=work, name="worker")
worker.start()
while not lock.locked():
    pass
threading.Thread(target=want, name="wanter").start()
child = subprocess.Popen(["sleep", "60"])
ready(child.pid)
worker.join()
child.kill()
"""


def children() -> set[int]:
    """The pids of this process's own children."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@dataclass(frozen=True)
class Program:
    """A running program. `said` is what it passed to ready(); it ends when told to, or at the end of the block."""

    process: subprocess.Popen[str]
    said: list[Any]

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        """Let wait() return and the program end; it stays a zombie until the block ends."""
        cast("IO[str]", self.process.stdin).close()

    def asleep(self, tid: int | None = None) -> None:
        """Until a thread (default: the main one) sleeps."""
        wait_until(lambda: state(self.pid, tid) == "S", f"thread {tid or self.pid} asleep")


@contextlib.contextmanager
def program(
    code: str, *arguments: str, prefix: Sequence[str] = (), executable: str = sys.executable, path: Path | None = None
) -> Iterator[Program]:
    """Run Python `code`, which has ready() and wait() to use, under the command `prefix`, and kill it at the end.

    `path` is put on its module search path.
    """
    environment = {**os.environ, "PYTHONPATH": str(path)} if path else None
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(tempfile.NamedTemporaryFile("w", suffix=".py"))
        source.write(PRELUDE + textwrap.dedent(code))
        source.flush()
        os.chmod(source.name, 0o644)
        command = [*prefix, executable, source.name, *arguments]
        process = opened.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
        stdout = cast("IO[str]", process.stdout)
        try:
            assert select.select([stdout], [], [], START_S)[0], "the program did not get ready"
            yield Program(process, json.loads(stdout.readline()))
        finally:
            process.kill()


def state(pid: int, tid: int | None = None) -> str:
    """State letter of a thread."""
    line = Path(f"/proc/{pid}/task/{tid or pid}/stat").read_text()
    return line.rpartition(")")[2].split()[0]


def states(pid: int) -> set[str]:
    """State letters of all threads of a process."""
    return {state(pid, int(tid)) for tid in os.listdir(f"/proc/{pid}/task")}


def one(snapshot: Snapshot, pid: int) -> Process:
    process = snapshot.process(pid)
    assert process is not None
    return process


def blocked(target: Program) -> None:
    """Until all three threads of SERVER sleep."""
    for tid in os.listdir(f"/proc/{target.pid}/task"):
        target.asleep(int(tid))
