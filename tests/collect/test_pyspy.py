"""Stacks through the real py-spy: modes, reasons for failure, and nothing but addresses, numbers and paths of values."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from gpudiag.collect import pyspy, pyspy_errors
from gpudiag.collect.merge import with_locals_of
from gpudiag.collect.pyspy import Dumps, StackMode, dump_stacks, find_py_spy
from gpudiag.collect.pyspy_errors import classify
from gpudiag.collect.pyspy_json import parse_dump
from gpudiag.collect.rooted import Root
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.stack import Frame, PyStack
from tests.collect.helpers import program, state, states
from tests.support.processes import wait_until

SECRETS = """
def serve(prompt, path, missing, number, huge, flag, nothing):
    inner = {"prompt": prompt}
    ready()
    wait()

serve("tell me a secret", sys.argv[1], "/no/such/file", 42, 2 ** 40, True, None)
"""
MANY_THREADS = """
lock = threading.Lock()
lock.acquire()
threads = [threading.Thread(target=lock.acquire, daemon=True) for _ in range(40)]
for thread in threads:
    thread.start()
ready()
wait()
"""


def existing(pid: int, paths: object) -> frozenset[str]:
    assert isinstance(paths, frozenset | set)
    with Root(pid) as root:
        return frozenset(root.existing(paths))


def dump(*pids: int, mode: StackMode = "nonblocking", with_locals: bool = True, deadline_s: float = 20) -> Dumps:
    wanted = frozenset(pids) if with_locals else frozenset()
    return dump_stacks(pids, mode=mode, with_locals=wanted, deadline_s=deadline_s, existing=existing)


def main_frames(dumps: Dumps, pid: int) -> dict[str, Frame]:
    reading = dumps.stacks[pid]
    assert isinstance(reading, Ok), reading
    return {frame.function: frame for stack in reading.value if stack.tid == pid for frame in stack.frames}


def test_values_are_whole_numbers_and_paths_that_exist_and_nothing_else(tmp_path: Path) -> None:
    with program(SECRETS, str(tmp_path)) as target:
        target.asleep()
        frame = main_frames(dump(target.pid), target.pid)["serve"]
    assert set(frame.locals) == {"prompt", "path", "missing", "number", "huge", "flag", "nothing", "inner"}
    assert all(address > 0 for address in frame.locals.values())
    assert frame.values == {"path": str(tmp_path), "number": "42"}
    assert b"secret" not in msgspec.json.encode(frame)


def test_without_locals_there_are_none(tmp_path: Path) -> None:
    with program(SECRETS, str(tmp_path)) as target:
        target.asleep()
        frame = main_frames(dump(target.pid, with_locals=False), target.pid)["serve"]
    assert (frame.locals, frame.values) == ({}, {})


@pytest.mark.parametrize("mode", ["pause", "native"])
def test_modes_that_stop_the_target_say_for_how_long_and_let_it_go(mode: StackMode, tmp_path: Path) -> None:
    with program(SECRETS, str(tmp_path)) as target:
        target.asleep()
        dumps = dump(target.pid, mode=mode)
        frames = main_frames(dumps, target.pid)
        assert 0 < dumps.stopped_s < 10
        assert states(target.pid) == {"S"}
    assert frames["serve"].values == {"path": str(tmp_path), "number": "42"}
    assert any(frame.native for frame in frames.values()) == (mode == "native")


def test_the_default_mode_stops_nothing() -> None:
    with program(MANY_THREADS) as target:
        target.asleep()
        assert dump(target.pid).stopped_s == 0.0


def test_a_stopped_process_can_be_read_without_stopping_it() -> None:
    with program(MANY_THREADS) as target:
        target.asleep()
        os.kill(target.pid, signal.SIGSTOP)
        wait_until(lambda: state(target.pid) == "T", "the target stopped")
        plain = dump(target.pid).stacks[target.pid]
        assert isinstance(plain, Ok)
        assert len(plain.value) == 41
        paused = dump(target.pid, mode="pause")
        assert isinstance(paused.stacks[target.pid], Ok), "it is then read without a pause"
        why = paused.torn[target.pid]
        assert isinstance(why, Unavailable)
        assert "stopped" in why.reason
        assert why.help
        assert state(target.pid) == "T", "a stop that is not ours stays"


def test_several_targets_and_one_that_is_gone_and_one_without_python() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with program("ready()\nwait()") as one, program("ready()\nwait()") as other, subprocess.Popen(["sleep", "60"]) as sleep:
        dumps = dump(one.pid, other.pid, ended.pid, sleep.pid).stacks
        sleep.kill()
    assert isinstance(dumps[one.pid], Ok)
    assert isinstance(dumps[other.pid], Ok)
    gone, foreign = dumps[ended.pid], dumps[sleep.pid]
    assert isinstance(gone, Unavailable)
    assert "gone" in gone.reason
    assert isinstance(foreign, Unavailable)
    assert "no Python" in foreign.reason
    assert str(sleep.pid) in foreign.help


def script(path: Path, body: str) -> str:
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def stand_in(monkeypatch: pytest.MonkeyPatch, path: str | None) -> None:
    monkeypatch.setattr(pyspy, "find_py_spy", lambda: path)


def test_one_that_takes_too_long_is_killed_at_the_deadline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    stand_in(monkeypatch, script(tmp_path / "py-spy", f"open({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"))
    late = dump(os.getpid(), deadline_s=1.0).stacks[os.getpid()]
    assert isinstance(late, Failed)
    assert "deadline" in late.error
    pid = int(note.read_text())
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the late py-spy gone")


@pytest.mark.parametrize("mode", ["nonblocking", "pause"])
def test_when_it_hangs_with_everybody_the_whole_takes_twice_the_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: StackMode
) -> None:
    stand_in(monkeypatch, script(tmp_path / "py-spy", "time.sleep(60)"))
    began = time.monotonic()
    # No process has such a number.
    stacks = dump(*range(1 << 23, (1 << 23) + 64), mode=mode, with_locals=False, deadline_s=1.0).stacks
    took_s = time.monotonic() - began
    assert all(isinstance(late, Failed) and "deadline" in late.error for late in stacks.values())
    assert took_s < (3 if mode == "nonblocking" else 5)


def test_what_may_not_be_stopped_is_read_without(tmp_path: Path) -> None:
    code = """
    from gpudiag.collect.pyspy import dump_stacks
    pid = int(sys.argv[1])
    dumps = dump_stacks([pid], mode="native", with_locals=set(), deadline_s=20, existing=lambda pid, paths: set())
    frames = [f.function for stack in dumps.stacks[pid].value for f in stack.frames]
    ready(frames, dumps.torn[pid].reason)
    """
    filtered = (sys.executable, str(Path(__file__).with_name("seccomp.py")), "ptrace,pidfd_open")
    with (
        program(SECRETS, str(tmp_path)) as target,
        program(code, str(target.pid), prefix=filtered, executable="--", path=Path(__file__).parents[2]) as asker,
    ):
        frames, why = asker.said
    assert "serve" in frames
    assert "seccomp" in why


def test_it_ends_with_gpudiag_even_while_it_hangs(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    hanging = script(tmp_path / "py-spy", f"open({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    code = """
    from gpudiag.collect import pyspy
    pyspy.find_py_spy = lambda: sys.argv[1]
    ready()
    pyspy.dump_stacks([1], mode="nonblocking", with_locals=set(), deadline_s=50, existing=lambda pid, paths: set())
    """
    with program(code, hanging, path=Path(__file__).parents[2]) as asker:
        wait_until(lambda: note.exists() and note.read_text() != "", "a hanging py-spy")
        asker.process.kill()
    wait_until(lambda: not os.path.exists(f"/proc/{note.read_text()}"), "the end of the hanging py-spy")


def test_a_torn_read_is_tried_again_at_most_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    count = tmp_path / "count"
    body = f"open({str(count)!r}, 'a').write('x')\nsys.exit('Error: Failed to get stack traces: torn')"
    stand_in(monkeypatch, script(tmp_path / "py-spy", body))
    torn = dump(os.getpid()).stacks[os.getpid()]
    assert isinstance(torn, Failed)
    assert "torn" in torn.error
    assert count.read_text() == "xxx"
    real = find_py_spy()
    assert real is not None
    second = f"""
open({str(count)!r}, 'a').write('y')
if 'yy' not in open({str(count)!r}).read():
    sys.exit('torn')
os.execv({real!r}, [{real!r}, *sys.argv[1:]])
"""
    stand_in(monkeypatch, script(tmp_path / "py-spy", second))
    with program("ready()\nwait()") as target:
        assert isinstance(dump(target.pid).stacks[target.pid], Ok)
    assert count.read_text() == "xxxyy"


@pytest.mark.parametrize("said", ["", "[", '[{"pid": 1}]', "{}", "null"])
def test_what_is_no_complete_dump_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str) -> None:
    stand_in(monkeypatch, script(tmp_path / "py-spy", f"print({said!r})"))
    assert isinstance(dump(os.getpid()).stacks[os.getpid()], Failed)


def test_a_missing_and_a_broken_py_spy_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch, None)
    assert dump(7).stacks[7] == Unavailable(reason="py-spy is not installed", help=f"{sys.executable} -m pip install py-spy")
    stand_in(monkeypatch, str(tmp_path))
    broken = dump(os.getpid()).stacks[os.getpid()]
    assert isinstance(broken, Failed)
    assert "cannot be started" in broken.error


def test_py_spy_beside_the_interpreter_comes_before_the_one_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    beside, on_path = tmp_path / "bin", tmp_path / "path"
    for directory in (beside, on_path):
        directory.mkdir()
        script(directory / "py-spy", "")
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    assert find_py_spy() == str(beside / "py-spy")
    (beside / "py-spy").unlink()
    assert find_py_spy() == str(on_path / "py-spy")
    (on_path / "py-spy").unlink()
    assert find_py_spy() is None


@pytest.mark.parametrize(
    ("stderr", "kind", "word"),
    [
        ("Error: Failed to get process executable name.\n\nCaused by:\n    0: Permission denied (os error 13)", Unavailable, ""),
        ("Error: Operation not permitted (os error 1)", Unavailable, ""),
        ("Error: Failed to find python version from target process", Unavailable, "no Python"),
        ("Error: Failed to suspend process", Failed, "suspend"),
        (
            "Error: Failed to get stack traces\n\nCaused by:\n    Invalid address\n\nStack backtrace:\n  0: x",
            Failed,
            "Invalid address",
        ),
        ("Error: No such file or directory (os error 2)", Failed, "os error 2"),
        ("", Failed, "no output"),
    ],
)
def test_what_py_spy_says_is_classified(stderr: str, kind: type, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy_errors, "_filtered", lambda: False)
    reading = classify(os.getpid(), stderr)
    assert isinstance(reading, kind)
    assert word in (reading.reason if isinstance(reading, Unavailable) else reading.error)
    assert "backtrace" not in str(reading)
    if isinstance(reading, Unavailable):
        assert reading.help


def test_a_zombie_is_told() -> None:
    with program("ready()\nwait()") as target:
        target.end()
        wait_until(lambda: state(target.pid) == "Z", "a zombie")
        reading = classify(target.pid, "Error: No such file or directory (os error 2)")
        assert isinstance(reading, Unavailable)
        assert "zombie" in reading.reason


def test_a_debugger_that_holds_the_target_is_named() -> None:
    code = """
    import ctypes
    target = int(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(0x4206, target, 0, 0) == 0
    assert libc.ptrace(0x4207, target, 0, 0) == 0
    os.waitpid(target, 0x40000000)
    ready()
    wait()
    """
    with program("ready()\nwait()") as target, program(code, str(target.pid)) as debugger:
        reading = classify(target.pid, "Error: Failed to suspend process")
        assert isinstance(reading, Unavailable)
        assert str(debugger.pid) in reading.reason


def test_threads_without_an_id_are_left_out_and_quotes_are_no_way_around_the_filter() -> None:
    local = '{"name": "x", "addr": 1, "arg": true, "repr": %s}'
    reprs = [
        r"\"/etc\"",
        r"\"/etc/../etc\"",
        r"\"\"/etc\"",
        r"\"/prompt with a slash\"",
        "'/etc'",
        "-7",
        "2147483648",
        "1e5",
        r"\"7\"",
        "٣",
    ]
    locals_ = ",".join((local % f'"{r}"').replace('"x"', f'"x{n}"') for n, r in enumerate(reprs))
    frame = f'{{"name": "f", "filename": "a.py", "module": null, "line": 3, "locals": [{locals_}]}}'
    thread = '{"thread_id": 5, "thread_name": null, "os_thread_id": %s, "active": true, "owns_gil": true, "frames": [%s]}'
    raw = f"[{thread % ('9', frame)}, {thread % ('null', frame)}]".encode()
    (stack,) = parse_dump(raw, lambda paths: existing(os.getpid(), paths))
    assert (stack.tid, stack.ident, stack.owns_gil) == (9, 5, True)
    assert stack.frames[0].values == {"x0": "/etc", "x1": "/etc/../etc", "x5": "-7"}


def test_locals_join_only_the_same_frames() -> None:
    def stack(*frames: Frame) -> PyStack:
        return PyStack(tid=1, name=None, ident=2, active=False, owns_gil=False, frames=frames)

    native = Frame(function="futex", file="/lib/libc.so.6", line=0, native=True)
    still = Frame(function="f", file="a.py", line=3)
    moving = Frame(function="f", file="a.py", line=3, locals={"x": 1}, values={"x": "7"})
    moved = Frame(function="f", file="a.py", line=4, locals={"x": 1})
    assert with_locals_of((stack(native, still),), (stack(moving),)) == (stack(native, moving),)
    assert with_locals_of((stack(native, still),), (stack(moved),)) == (stack(native, still),)
    assert with_locals_of((stack(native, still),), ()) == (stack(native, still),)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_another_user_without_rights_is_told_what_to_type() -> None:
    code = """
    from gpudiag.collect.pyspy_errors import classify
    reading = classify(int(sys.argv[1]), "Error: Permission denied (os error 13)")
    ready(reading.reason, reading.help)
    """
    root = Path(__file__).parents[2]
    prefix = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
    with (
        program("os.setuid(65534)\nready()\nwait()") as target,
        program(code, str(target.pid), prefix=prefix, path=root) as asker,
    ):
        reason, help_ = asker.said
    assert "CAP_SYS_PTRACE" in reason
    assert "gpudiag attach" in help_
