"""Launch the small server of programs/server.py the way `gpudiag launch` does, and end whatever is left of it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpudiag.collect.family import descendants
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.run_directory import RunDirectory
from gpudiag.launch.start import Started, start
from gpudiag.model.report import Report
from gpudiag.model.run import LaunchPlan, RunProgress
from tests.support.processes import wait_until

PROGRAM = Path(__file__).parent / "programs" / "server.py"
LIMIT_S = 30.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def plan_of(directory: Path, *, argv: tuple[str, ...] = (), port: int | None = None, **fields: object) -> LaunchPlan:
    """A plan for the small server with two ranks. `argv` are further arguments of it."""
    port = port or free_port()
    command = (
        sys.executable,
        str(PROGRAM),
        "vllm.entrypoints.openai.api_server",
        "--tensor-parallel-size",
        "2",
        "--port",
        str(port),
    )
    return LaunchPlan(
        run_id=directory.name,
        run_directory=str(directory),
        engine="vllm",
        version="0.32.0",
        python=sys.executable,
        argv=(*command, *argv),
        environment=(),
        settings=(),
        profile=None,
        model="tiny",
        drafter=None,
        host="127.0.0.1",
        port=port,
        tensor_parallel=2,
        **fields,  # type: ignore[arg-type]
    )


class Launched:
    """A run, and the questions that tests ask about it."""

    def __init__(self, started: Started, plan: LaunchPlan) -> None:
        self.started = started
        self.plan = plan
        self.run = RunDirectory(started.run)

    @property
    def progress(self) -> RunProgress:
        progress = self.run.progress()
        assert progress is not None
        return progress

    @property
    def report(self) -> Report:
        assert self.progress.report is not None, self.progress
        return msgspec.json.decode((self.run.path / self.progress.report).read_bytes(), type=Report)

    @property
    def family(self) -> list[int]:
        """Every process of the server, by /proc."""
        return [pid for pid in descendants([self.started.server_pid]) if pid != self.started.supervisor_pid]

    def worker(self, rank: int) -> int:
        """The pid of the rank's process."""
        for pid in self.family:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"VLLM::Worker_TP{rank}".encode()):
                return pid
        raise AssertionError(f"no rank {rank} among {self.family}")

    def until(self, condition: Callable[[RunProgress], bool], what: str, limit_s: float = LIMIT_S) -> RunProgress:
        wait_until(lambda: condition(self.progress), f"{what}; last: {self.progress}; {self._errors()}", limit_s)
        return self.progress

    def ready(self) -> None:
        self.until(lambda p: p.state == "serving", "the server is ready")

    def ask(self, timeout_s: float) -> bytes:
        """The body of the answer to a request for a completion."""
        connection = http.client.HTTPConnection("127.0.0.1", self.plan.port, timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", body=b"{}")
            return connection.getresponse().read()

    def fetch(self, path: str) -> bytes:
        """The body of what is there."""
        connection = http.client.HTTPConnection("127.0.0.1", self.plan.port, timeout=10.0)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.started.supervisor_pid, number)

    def wait_for_end(self, limit_s: float = LIMIT_S) -> RunProgress:
        """Until the supervisor is gone."""
        wait_until(lambda: not alive(self.started.supervisor_pid), f"the supervisor ends; {self._errors()}", limit_s)
        return self.progress

    def _errors(self) -> str:
        return self.run.supervisor_log.read_text(errors="replace")[-2000:]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def launched(plan: LaunchPlan, options: SuperviseOptions | None = None) -> Iterator[Launched]:
    """Start, and at the end kill the server with all that is left, and its supervisor."""
    run = Launched(start(plan, options or SuperviseOptions(tui=False)), plan)
    try:
        yield run
    finally:
        for pid in (*run.family, *descendants([run.started.supervisor_pid])):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
