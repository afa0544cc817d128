"""Whole looks at real processes: what is there, what changed, and what could not be seen."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from gpudiag.collect.deadline import Guard
from gpudiag.collect.look import LookOptions, look, observe, scan
from gpudiag.collect.one_look import OneLook
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable
from gpudiag.model.snapshot import Observation, Snapshot
from tests.collect.helpers import SERVER, blocked, children, one, program, state
from tests.support.checkout import ROOT
from tests.support.processes import wait_until

SECCOMP = Path(__file__).parent / "seccomp.py"
PLAIN = LookOptions(stacks="none", locals=False)
READINGS = (
    "cmdline",
    "exe",
    "environ",
    "io",
    "fds",
    "libraries",
    "syscalls",
    "polls",
    "futexes",
    "stacks",
    "lock_uses",
    "file_polls",
)


def test_a_whole_look() -> None:
    started = time.time()
    with program(SERVER, prefix=("env", "RANK=3", "MY_TOKEN=hush")) as target:
        blocked(target)
        snapshot = look([target.pid])
        process = one(snapshot, target.pid)
        (child,) = target.said
        assert one(snapshot, child).ppid == target.pid
        assert snapshot.roots == (target.pid,)
        assert started <= snapshot.at <= time.time()
        assert 0 < snapshot.took_s < 30
        assert snapshot.stopped_s == 0.0
        for name in READINGS:
            assert isinstance(getattr(process, name), Ok), (name, getattr(process, name))
        assert isinstance(process.environ, Ok)
        assert process.environ.value.get("RANK") == "3"
        assert "MY_TOKEN" not in process.environ.value
        assert process.python_version == f"{sys.version_info[0]}.{sys.version_info[1]}"
        assert isinstance(process.stacks, Ok)
        assert {stack.tid for stack in process.stacks.value} == {thread.tid for thread in process.threads}
        assert isinstance(process.lock_uses, Ok)
        held = {use.held for use in process.lock_uses.value if use.expression == "lock"}
        assert held == {True, False}
        stacks = one(snapshot, child).stacks
        assert isinstance(stacks, Unavailable)
        assert "no Python" in stacks.reason
        assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot) == snapshot


def test_host_facts() -> None:
    host = scan().host
    assert host.name == os.uname().nodename
    assert host.cpu_count == len(os.sched_getaffinity(0))
    assert host.clock_ticks == os.sysconf("SC_CLK_TCK")
    assert host.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host.pid_namespace == os.stat("/proc/self/ns/pid").st_ino
    assert host.observer_uid == os.geteuid()


def test_scan_sees_every_process_but_none_of_the_kernel() -> None:
    with program("ready()\nwait()") as target, subprocess.Popen(["sleep", "60"]) as sleep:
        snapshot = scan()
        sleep.kill()
    process = one(snapshot, sleep.pid)
    assert process.title == "sleep 60"
    assert (process.threads, process.fds) == ((), NOT_ASKED)
    assert one(snapshot, target.pid).ppid == os.getpid()
    assert snapshot.process(2) is None or one(snapshot, 2).name != "kthreadd"
    assert snapshot.took_s < 10


def test_a_root_that_does_not_exist_is_not_in_the_snapshot() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    snapshot = look([ended.pid], PLAIN)
    assert snapshot.processes == ()
    assert snapshot.roots == (ended.pid,)


@pytest.mark.parametrize(("samples", "confirm", "looks"), [(1, False, 1), (3, False, 3)])
def test_looks_start_at_their_interval(samples: int, confirm: bool, looks: int) -> None:
    with program("ready()\nwait()") as target:
        observation = observe([target.pid], PLAIN, samples=samples, interval_s=0.2, confirm=confirm)
    assert len(observation.snapshots) == looks
    assert isinstance(observation, Observation)
    assert observation.span_s >= 0.2 * (looks - 1)


def test_a_confirmation_comes_five_seconds_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with program("ready()\nwait()") as target:
        assert len(observe([target.pid], PLAIN, confirm=True).snapshots) == 3
    assert max(waits) == pytest.approx(5.0, abs=1.0)


def test_scan_and_looks_may_share_a_child_that_is_ready_before_them() -> None:
    before = children()
    with Guard(0.0) as guard, program("ready()\nwait()") as target:
        (child,) = children() - before - {target.pid}
        during: list[tuple[Snapshot, float, set[int]]] = []
        assert scan(guard).process(target.pid) is not None
        observation = observe(
            [target.pid],
            PLAIN,
            interval_s=1.0,
            guard=guard,
            meanwhile=lambda first, left_s: during.append((first, left_s, children() - before - {target.pid})),
        )
        ((first, left_s, readers),) = during
        assert (first, readers) == (observation.first, {child})
        assert 0 <= left_s < 1.0
        assert isinstance(one(observation.last, target.pid).cmdline, Ok)
        assert child in children()
    assert child not in children()


def test_less_than_one_sample_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        observe([1], samples=0)


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("stacks", ["stacks"]),
        ("memory", ["futexes", "polls", "lock_uses", "file_polls"]),
        ("fds", ["fds"]),
        ("syscalls", ["syscalls", "futexes", "polls"]),
        ("environ", ["environ"]),
        ("io", ["io"]),
    ],
)
def test_a_withheld_source_is_unavailable_and_the_others_are_there(source: str, fields: list[str]) -> None:
    with program(SERVER) as target:
        blocked(target)
        options = msgspec.convert({"withhold": [source]}, LookOptions)
        process = one(look([target.pid], options), target.pid)
    for name in READINGS:
        reading = getattr(process, name)
        if name in fields:
            assert isinstance(reading, Unavailable), name
            assert reading.reason == "withheld"
        elif name not in ("lock_uses", "file_polls"):
            assert isinstance(reading, Ok), (name, reading)


def test_a_stopped_process_is_read_in_full() -> None:
    with program(SERVER) as target:
        blocked(target)
        os.kill(target.pid, signal.SIGSTOP)
        wait_until(lambda: state(target.pid) == "T", "the target stopped")
        for mode in ("nonblocking", "pause"):
            process = one(look([target.pid], msgspec.convert({"stacks": mode}, LookOptions)), target.pid)
            assert process.state == "T"
            assert isinstance(process.stacks, Ok)
        assert state(target.pid) == "T"


def test_a_zombie_child_has_an_exit_code_and_nothing_else() -> None:
    code = """
    import subprocess
    child = subprocess.Popen(["sh", "-c", "exit 7"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    ready(child.pid)
    wait()
    """
    with program(code) as target:
        zombie = one(look([target.pid]), target.said[0])
    assert (zombie.state, zombie.exit_code) == ("Z", 7 << 8)
    for name in READINGS:
        reading = getattr(zombie, name)
        assert isinstance(reading, Unavailable), name
        assert "exited" in reading.reason


def test_one_that_exits_in_the_middle_leaves_the_rest_of_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    real = OneLook._read_network
    with program(SERVER) as target, program("ready()\nwait()") as leaving:

        def leave(self: OneLook) -> object:
            leaving.end()
            leaving.process.wait()
            return real(self)

        blocked(target)
        monkeypatch.setattr(OneLook, "_read_network", leave)
        snapshot = look([target.pid, leaving.pid])
    assert isinstance(one(snapshot, target.pid).lock_uses, Ok)
    gone = one(snapshot, leaving.pid)
    assert isinstance(gone.cmdline, Ok)
    assert isinstance(gone.stacks, Unavailable)
    assert "gone" in gone.stacks.reason


def test_a_reused_pid_is_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    real = OneLook._read_states

    def older(self: OneLook) -> None:
        real(self)
        self._full = {pid: msgspec.structs.replace(p, start_ticks=p.start_ticks - 1) for pid, p in self._full.items()}

    with program(SERVER) as target:
        blocked(target)
        monkeypatch.setattr(OneLook, "_read_states", older)
        process = one(look([target.pid]), target.pid)
    for reading in (process.stacks, process.futexes, process.lock_uses):
        assert isinstance(reading, Unavailable)
        assert "reused" in reading.reason


def test_who_holds_a_lock_is_told_with_its_path(tmp_path: Path) -> None:
    code = """
    import fcntl
    file = open(sys.argv[1], "w")
    ready()
    fcntl.flock(file, fcntl.LOCK_EX)
    """
    path = tmp_path / "lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with program(code, str(path)) as target:
            wait_until(lambda: "flock" in Path(f"/proc/{target.pid}/wchan").read_text() or state(target.pid) == "S", "the flock")
            snapshot = look([target.pid], PLAIN)
            assert isinstance(snapshot.file_locks, Ok)
            locks = {lock.blocked: lock for lock in snapshot.file_locks.value}
            assert (locks[False].pid, locks[False].path) == (os.getpid(), str(path))
            assert (locks[True].pid, locks[True].path) == (target.pid, str(path))
            assert one(snapshot, os.getpid()).threads == ()


def test_a_lock_outlives_the_process_that_took_it(tmp_path: Path) -> None:
    code = """
    import fcntl
    file = open(sys.argv[1], "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    if os.fork():
        os._exit(0)
    ready(os.getpid())
    wait()
    """
    with program(code, str(tmp_path / "lock")) as target:
        target.process.wait()
        (heir,) = target.said
        snapshot = look([heir], PLAIN)
        os.kill(heir, signal.SIGKILL)
    assert isinstance(snapshot.file_locks, Ok)
    (lock,) = snapshot.file_locks.value
    assert lock.pid != heir
    assert lock.holders == (heir,)


def test_a_polled_file_has_its_facts(tmp_path: Path) -> None:
    code = """
    import time
    def wait_for(path):
        while os.path.exists(path):
            time.sleep(0.05)
    ready()
    wait_for(sys.argv[1])
    """
    path = tmp_path / "lock"
    path.touch()
    with program(code, str(path)) as target:
        wait_until(lambda: look([target.pid]).files != (), "the polled file")
        snapshot = look([target.pid])
    polls = one(snapshot, target.pid).file_polls
    assert isinstance(polls, Ok)
    assert [(poll.path, poll.until) for poll in polls.value] == [(str(path), "gone")]
    assert [(fact.path, fact.exists, fact.openers) for fact in snapshot.files] == [(str(path), True, ())]


def look_under(prefix: list[str], pid: int) -> Snapshot:
    """A full look from a new process under `prefix`."""
    code = """if True:
        import sys, msgspec
        from gpudiag.collect.look import observe
        sys.stdout.buffer.write(msgspec.json.encode(observe([int(sys.argv[1])], interval_s=0.1).last))
    """
    result = subprocess.run([*prefix, "-c", code, str(pid)], cwd=ROOT, capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr.decode()
    return msgspec.json.decode(result.stdout, type=Snapshot)


def test_a_look_uses_neither_ptrace_nor_signals() -> None:
    with program(SERVER) as target:
        blocked(target)
        filtered = look_under([sys.executable, str(SECCOMP), "ptrace,kill,tkill,tgkill,pidfd_send_signal", "--"], target.pid)
        free = look_under([sys.executable], target.pid)
        assert not filtered.gaps
    for name in READINGS:
        one_reading, other = (getattr(one(s, target.pid), name) for s in (filtered, free))
        assert isinstance(one_reading, Ok), name
        if name != "io":
            assert one_reading.value == other.value, name


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
class TestLessRights:
    # Since Linux 6.15 CAP_PERFMON, and with it CAP_SYS_ADMIN, opens environ and maps.
    CAPABILITIES = "-sys_ptrace,-perfmon,-sys_admin"
    DROP = ("setpriv", "--bounding-set", CAPABILITIES, "--inh-caps", CAPABILITIES, sys.executable)

    def refused(self, snapshot: Snapshot, pid: int, names: tuple[str, ...]) -> None:
        process = one(snapshot, pid)
        for name in names:
            reading = getattr(process, name)
            assert isinstance(reading, Unavailable), (name, reading)
            assert "CAP_SYS_PTRACE" in reading.reason, name
            assert f"gpudiag attach {pid}" in reading.help or "sudo gpudiag attach" in reading.help, name

    def test_a_target_of_another_user_without_the_right_to_trace(self) -> None:
        with program("os.setuid(65534)\nready()\nwait()") as target:
            snapshot = look_under(list(self.DROP), target.pid)
            assert not snapshot.host.can_trace
            process = one(snapshot, target.pid)
            assert process.uid == 65534
            assert isinstance(process.cmdline, Ok)
            assert not process.wchans_readable
            self.refused(
                snapshot, target.pid, ("exe", "environ", "io", "fds", "libraries", "syscalls", "futexes", "stacks", "lock_uses")
            )

    def test_a_target_that_is_not_dumpable(self) -> None:
        with program("import ctypes\nctypes.CDLL(None).prctl(4, 0)\nready()\nwait()") as target:
            self.refused(
                look_under(list(self.DROP), target.pid), target.pid, ("exe", "io", "fds", "syscalls", "futexes", "stacks")
            )
            assert isinstance(one(look([target.pid]), target.pid).stacks, Ok)

    def test_another_user_needs_another_user_or_root(self) -> None:
        prefix = ["setpriv", "--reuid", "65533", "--clear-groups", "--inh-caps", "-all,+dac_read_search"]
        prefix += ["--ambient-caps", "-all,+dac_read_search", sys.executable]
        with program("os.setuid(65534)\nready()\nwait()") as target:
            stacks = one(look_under(prefix, target.pid), target.pid).stacks
        assert isinstance(stacks, Unavailable)
        assert "65534" in stacks.reason
        assert "65533" in stacks.reason


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_target_in_a_pid_namespace_of_its_own() -> None:
    with program(SERVER, prefix=("unshare", "-pf", "--mount-proc")) as shell:
        wait_until(lambda: len(look([shell.pid], PLAIN).processes) >= 3, "the processes in the namespace")
        snapshot = look([shell.pid])
        inner = next(p for p in snapshot.processes if len(p.ns_pids) == 2 and p.ns_pids[1] == 1)
        assert inner.ppid == shell.pid
        assert inner.pid_namespace != snapshot.host.pid_namespace
        assert isinstance(inner.stacks, Ok)
        assert {stack.tid for stack in inner.stacks.value} == {thread.tid for thread in inner.threads}
        assert isinstance(inner.lock_uses, Ok)
        assert {use.tid for use in inner.lock_uses.value} <= {thread.tid for thread in inner.threads}
        os.kill(inner.pid, signal.SIGKILL)


def test_a_failed_reader_fails_its_sources_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with program(SERVER) as target:
        blocked(target)
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        process = one(look([target.pid]), target.pid)
    assert isinstance(process.cmdline, Failed)
    assert isinstance(process.fds, Ok)
    assert len(process.threads) == 3
