"""Start a test program, wait until it stands where it should, and end it by pid.

    with running("event_nobody_sets", ranks=3, victim=1, kind="future") as program:
        program.pids["rank1"]

What each program does is said at its top. A program comes up in about a second, one with torch in as long as torch takes
to load plus that.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpudiag.demo.procstate import GONE, posture, stat_fields
from gpudiag.demo.spawn import end_session, environment_for
from tests.support.checkout import ROOT

PROGRAMS = Path(__file__).parent
START_LIMIT_S = 60.0
STUCK_LIMIT_S = 10.0
LOOK_APART_S = 0.03
_UTIME, _STIME = 11, 12


@dataclass
class Program:
    """A program that has arrived. `pids` is by name: 'root', 'rank0' ... and the program's other roles."""

    root_pid: int
    arrivals: dict[str, dict[str, Any]] = field(default_factory=dict)
    client: subprocess.Popen[bytes] | None = None
    """Waits for an answer of the program, where that takes requests; no child of the root."""

    @property
    def pids(self) -> dict[str, int]:
        return {name: arrival["pid"] for name, arrival in self.arrivals.items()}

    @property
    def rank_pids(self) -> dict[int, int]:
        return {int(name[4:]): pid for name, pid in sorted(self.pids.items()) if name.startswith("rank")}

    def fact(self, name: str, key: str) -> Any:
        """Something that the process `name` said when it arrived."""
        return self.arrivals[name][key]


@contextmanager
def running(
    name: str,
    *,
    ranks: int = 2,
    victim: int = 0,
    style: str = "title",
    python: str | None = None,
    log: Path | None = None,
    quiet: bool = False,
    **options: object,
) -> Iterator[Program]:
    """Run tests/programs/NAME.py until the end of the block. `options` are the program's own.

    `style` is 'title' (ranks called demo::worker_TPn) or 'torchrun' (RANK, WORLD_SIZE ... in the environment, no title).
    `log` gets the output of the program, which has a directory of its own; if `quiet`, nobody gets what it says when it ends.
    """
    with TemporaryDirectory(prefix="gpudiag-test-") as directory:
        options |= {"directory": directory}
        yield from _run(name, ranks, victim, style, python or sys.executable, log, options, quiet=quiet)


def _run(
    name: str,
    ranks: int,
    victim: int,
    style: str,
    interpreter: str,
    log: Path | None,
    options: dict[str, object],
    *,
    quiet: bool,
) -> Iterator[Program]:
    script = PROGRAMS / f"{name}.py"
    ready, ready_far = os.pipe()
    lifeline_end, lifeline = os.pipe()
    environment = environment_for(ROOT / "gpudiag", interpreter)
    if style != "title":
        del environment["PYTHONHOME"]
    flags = [
        f"--ranks={ranks}",
        f"--victim={victim}",
        f"--style={style}",
        f"--ready-fd={ready_far}",
        f"--lifeline-fd={lifeline_end}",
    ]
    own = [f"{key}={value}" for key, value in {"python": interpreter, **options}.items()]
    title = "demo::frontend" if style == "title" else interpreter
    try:
        with open(log or os.devnull, "wb") as output:
            root = subprocess.Popen(
                [title, str(script), *flags, *own],
                executable=interpreter,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output if log or quiet else None,
                pass_fds=(ready_far, lifeline_end),
                start_new_session=True,
            )
    finally:
        os.close(ready_far)
        os.close(lifeline_end)
    program = Program(root.pid)
    try:
        _await_arrivals(program, root, ready, {"root", *(f"rank{number}" for number in range(ranks))})
        _await_rest(program)
        yield program
    finally:
        os.close(lifeline)
        os.close(ready)
        end_session(root)
        if program.client:
            program.client.kill()
            program.client.wait()


@contextmanager
def held_lock(path: Path, compiler: str = "") -> Iterator[int]:
    """The pid of a process that has flock(2) on the file, as one of another server would; a compiler may work below it."""
    tool = path.parent / compiler
    if compiler:
        tool.symlink_to(sys.executable)
    command = [sys.executable, str(PROGRAMS / "lock_holder.py"), str(path), *([str(tool)] if compiler else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        with holder.stdin:
            assert holder.stdout.readline() == b"\n"
            yield holder.pid


def torch_python() -> str | None:
    """An interpreter that has torch: this one, or the one in GPUDIAG_TORCH_PYTHON."""
    if importlib.util.find_spec("torch"):
        return sys.executable
    return os.environ.get("GPUDIAG_TORCH_PYTHON")


def _await_arrivals(program: Program, root: subprocess.Popen[bytes], ready: int, missing: set[str]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    partial = b""
    while missing:
        assert time.monotonic() < deadline, f"did not arrive: {sorted(missing)}"
        assert root.poll() is None, f"the program ended with {root.returncode}; missing: {sorted(missing)}"
        if not select.select([ready], [], [], 0.2)[0]:
            continue
        *lines, partial = (partial + os.read(ready, 65536)).split(b"\n")
        for line in lines:
            arrival = json.loads(line)
            program.arrivals[arrival["name"]] = arrival
            missing |= set(arrival["awaits"])
            if "port" in arrival:
                program.client = subprocess.Popen([sys.executable, str(PROGRAMS / "client.py"), str(arrival["port"])])
        missing -= program.arrivals.keys()


def _await_rest(program: Program) -> None:
    deadline = time.monotonic() + STUCK_LIMIT_S
    while True:
        first = _looks(program)
        time.sleep(LOOK_APART_S)
        second = _looks(program)
        unsettled = [name for name in first if not _settled(program.fact(name, "expects"), first[name], second[name])]
        if not unsettled:
            return
        assert time.monotonic() < deadline, f"did not come to rest: {[(name, first[name], second[name]) for name in unsettled]}"


Look = tuple[str, str, int]
"""State, system call and CPU ticks of the thread that a process says to look at."""


def _looks(program: Program) -> dict[str, Look]:
    found = {}
    for name, arrival in program.arrivals.items():
        ours = [(state, call) for tid, state, call in posture(arrival["pid"]) if tid == arrival["tid"]]
        fields = stat_fields(arrival["pid"])
        state, call = ours[0] if ours else ("X", "?")
        found[name] = (state, call, int(fields[_UTIME]) + int(fields[_STIME]) if fields else 0)
    return found


def _settled(expects: str, first: Look, second: Look) -> bool:
    if expects == "sleep":
        return first[0] == second[0] == "S" and first[1] == second[1]
    if expects == "run":
        return second[2] > first[2]
    if expects == "uninterruptible":
        return first[0] == second[0] == "D"
    if expects == "gone":
        return second[0] in GONE
    return True
