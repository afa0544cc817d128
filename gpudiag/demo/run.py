"""Start the demo server, let it hang, and end exactly what was started."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudiag.demo.plan import Names, Plan, draw, scenario_named
from gpudiag.demo.procstate import GONE, asleep, posture, session_members, state_of
from gpudiag.demo.reports import DemoError, Reports
from gpudiag.demo.scenarios import Scenario
from gpudiag.demo.spawn import Stage, end_session, environment_for, leave_stale_lock, shared_lock, write_settings
from gpudiag.errors import UsageError

SCRIPTS = Path(__file__).with_name("scripts")
START_LIMIT_S = 20.0
STUCK_LIMIT_S = 10.0
LOOK_APART_S = 0.03
KEEP_RUNNING = b"k"


class Running:
    """A demo server that is up and has answered one request."""

    def __init__(self, plan: Plan, stage: Stage, root: subprocess.Popen[bytes], reports: Reports, lifeline: int) -> None:
        self.plan = plan
        self.stage = stage
        self.root_pid = root.pid
        self.client: subprocess.Popen[bytes] | None = None
        self.visitor: subprocess.Popen[bytes] | None = None
        """A client that has its answer and keeps its connection; by the seed, and only where nothing hangs on a request."""
        self._root = root
        self._reports = reports
        self._lifeline = lifeline
        self._kept = False

    @property
    def expected(self) -> Scenario:
        return self.plan.scenario

    @property
    def rank_pids(self) -> dict[int, int]:
        """Pid of each rank, also of one that has died since."""
        return dict(sorted(self._reports.rank_pids.items()))

    @property
    def victim_rank(self) -> int | None:
        """None in a scenario without a victim."""
        return None if self.plan.victim < 0 else self.plan.victim

    @property
    def victim_pid(self) -> int | None:
        return None if self.plan.victim < 0 else self._reports.rank_pids[self.plan.victim]

    @property
    def client_pid(self) -> int | None:
        """The process that waits for an answer; not below the root. None where nothing was asked."""
        return self.client.pid if self.client else None

    @property
    def port(self) -> int:
        """TCP port on 127.0.0.1 on which the server answers HTTP/1.0: GET /health, POST /generate."""
        if self._reports.port is None:
            raise DemoError("the demo server has no port yet")
        return self._reports.port

    @property
    def directory(self) -> Path:
        return self.stage.home

    @property
    def lock_path(self) -> Path | None:
        """The lock file of the killed build; None in a scenario without one."""
        return shared_lock(self.directory)

    def ask(self) -> str:
        """Send a request that the server must answer, and return the answer. Raises DemoError or OSError."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=START_LIMIT_S) as connection:
            connection.sendall(b"POST /generate HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello")
            answer = b""
            while part := connection.recv(4096):
                answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.0 200 "):
            raise DemoError("the demo server did not answer a request")
        return body.decode("ascii")

    def wait_until_stuck(self, limit_s: float = STUCK_LIMIT_S) -> None:
        """Return once every process is where the scenario leaves it. Raises DemoError after `limit_s` seconds."""
        deadline = time.monotonic() + limit_s
        if self.victim_rank is not None:
            everyone = set(range(self.plan.ranks))
            self._reports.read_until(lambda: self._reports.waiting >= everyone, deadline, self._alive)
        elif self.plan.polling:
            return
        if self.expected.name == "slow-compile":
            self._reports.read_until(lambda: self._reports.compiling, deadline, self._alive)
        while not (self._victim_fell() and self._at_rest()):
            if time.monotonic() > deadline:
                raise DemoError(f"the {self.expected.name} demo did not come to rest within {limit_s:g} s")
            time.sleep(LOOK_APART_S)

    def keep(self) -> None:
        """Leave the server running after this; it then ends with `kill ROOT_PID`."""
        if not self._kept:
            os.write(self._lifeline, KEEP_RUNNING)
            self._kept = True

    def close(self) -> None:
        """End every process of the run and remove its directory, unless `keep` was called."""
        os.close(self._lifeline)
        if self._kept:
            return
        try:
            end_session(self._root)
        finally:
            for process in (self.client, self.visitor):
                if process is not None:
                    process.kill()
                    process.wait()
            shutil.rmtree(self.directory, ignore_errors=True)

    def bring_up(self) -> None:
        """Wait for all ranks, have one request answered and send the one that hangs. Raises DemoError."""
        reports = self._reports
        deadline = time.monotonic() + START_LIMIT_S
        try:
            reports.read_until(lambda: reports.port is not None and len(reports.up) == self.plan.ranks, deadline, self._alive)
            self.ask()
        except (DemoError, OSError) as error:
            tail = self.stage.log.read_text(errors="replace")[-2000:]
            raise DemoError(f"the demo server did not come up: {error}\n{tail}".rstrip()) from error
        if self.victim_rank is not None:
            self.client = self.stage.spawn("python", "client", str(self.port), session=True)
        elif self.plan.visited:
            self.visitor = self._spawn_visitor()

    def _spawn_visitor(self) -> subprocess.Popen[bytes]:
        told, told_far = os.pipe()
        try:
            visitor = self.stage.spawn("python", "visitor", str(self.port), str(told_far), fds=(told_far,), session=True)
            os.close(told_far)
            if not (select.select([told], [], [], START_LIMIT_S)[0] and os.read(told, 1)):
                visitor.kill()
                visitor.wait()
                raise DemoError("the demo server did not answer a client that keeps its connection")
            return visitor
        finally:
            os.close(told)

    def _alive(self) -> bool:
        return self._root.poll() is None

    def _victim_fell(self) -> bool:
        victim, name = self.victim_pid, self.expected.name
        if victim is None:
            return True
        if name == "rank-dead":
            return state_of(victim) in GONE
        if name == "rank-stopped":
            return state_of(victim) == "T"
        if name == "queue-to-nobody":
            return state_of(self._reports.feeder_pids[self.plan.victim]) in GONE
        return True

    def _at_rest(self) -> bool:
        """Whether the main threads of all processes sleep and no thread changes its system call between two looks."""
        aside = {self.victim_pid} if self.expected.name in ("rank-dead", "rank-stopped") else set()
        if self.expected.name == "slow-compile":
            sleepers = list(self.rank_pids.values())
        else:
            sleepers = [pid for pid in session_members(self.root_pid) if pid not in aside and state_of(pid) not in GONE]
        first = [posture(pid) for pid in sleepers]
        if not all(map(asleep, first)):
            return False
        time.sleep(LOOK_APART_S)
        return first == [posture(pid) for pid in sleepers]


@contextmanager
def start(
    scenario: str,
    *,
    ranks: int = 4,
    victim: int | None = None,
    seed: int | None = None,
    directory: Path | None = None,
    scripts: Path = SCRIPTS,
    names: Names | None = None,
    python: str = sys.executable,
    extra_threads: int = 0,
) -> Iterator[Running]:
    """Start a server of `ranks` ranks, have it answer one request, then give it the one on which it hangs.

    `victim` and everything else that may vary come from `seed` (None: from the system). The run gets a directory of
    its own below `directory` (None: the system's). `scripts` is a package with the demo's processes, `python` the
    interpreter that runs them, `extra_threads` the number of further idle threads in each rank. Raises UsageError for
    an unknown scenario, a rank out of range or a network namespace without loopback, and DemoError if the server does not
    come up.
    """
    _require_loopback()
    plan = draw(scenario_named(scenario), ranks=ranks, victim=victim, seed=seed, extra_threads=extra_threads)
    environment = environment_for(scripts, python)
    home = Path(tempfile.mkdtemp(prefix="gpudiag-demo-", dir=directory))
    stage = Stage(home=home, scripts=scripts, python=python, environment=environment, names=names or Names())
    report_end, report_far = os.pipe()
    try:
        running = _launch(plan, stage, Reports(report_end), report_far)
        try:
            running.bring_up()
            yield running
        finally:
            running.close()
    finally:
        os.close(report_end)


def _require_loopback() -> None:
    """A new network namespace has a loopback device that is down. Connecting a datagram socket only looks for a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("127.0.0.1", 9))
        except OSError as error:
            raise UsageError(f"the demo cannot reach 127.0.0.1: {error.strerror}", help="ip link set lo up") from error


def _launch(plan: Plan, stage: Stage, reports: Reports, report_far: int) -> Running:
    """Start the root. Takes over `report_far`; on failure nothing is left."""
    lifeline_end, lifeline = os.pipe()
    try:
        write_settings(plan, stage, lifeline_end, report_far)
        if plan.scenario.name == "stale-lock":
            leave_stale_lock(stage, lifeline_end, START_LIMIT_S)
        root = stage.spawn(
            f"{stage.names.prefix}::frontend",
            "frontend",
            "--tensor-parallel-size",
            str(plan.ranks),
            fds=(lifeline_end, report_far),
            log=stage.log,
            session=True,
        )
    except BaseException:
        os.close(lifeline)
        shutil.rmtree(stage.home, ignore_errors=True)
        raise
    finally:
        os.close(lifeline_end)
        os.close(report_far)
    return Running(plan, stage, root, reports, lifeline)
