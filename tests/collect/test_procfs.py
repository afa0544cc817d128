"""Parsing of /proc files, against lines the kernel may print and processes that make it print them."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudiag.collect import procfs
from gpudiag.collect.process_reader import read_light
from tests.collect.helpers import program, state
from tests.support.processes import wait_until

TAIL = b"S 7 8 9 0 -1 4194560 11 0 12 0 13 14 0 0 20 0 1 0 99 2000 5 18446744073709551615"


@given(st.binary(max_size=15).filter(lambda name: b"\0" not in name))
def test_a_name_may_hold_anything(name: bytes) -> None:
    stat = procfs.parse_stat(b"42 (" + name + b") " + TAIL)
    assert (stat.pid, stat.ppid, stat.pgid, stat.session) == (42, 7, 8, 9)
    assert (stat.minor_faults, stat.major_faults, stat.cpu_ticks, stat.start_ticks) == (11, 12, 27, 99)
    assert stat.rss_bytes == 5 * procfs.PAGE_SIZE
    assert stat.name == name.decode("utf-8", "backslashreplace")
    assert stat.state == "S"


@pytest.mark.parametrize("raw", [b"", b"42", b"42 (x", b"42 (x) S 1 2", b"(x) S"])
def test_what_is_no_stat_line_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError):
        procfs.parse_stat(raw)


def test_a_real_name_with_blanks_parentheses_and_a_newline() -> None:
    name = "a) R 1 (b\n\N{PILE OF POO}"
    code = """
    import ctypes
    ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
    ready()
    wait()
    """
    with program(code, name) as target:
        process = read_light(target.pid)
        assert process is not None
        assert process.name == name
        assert process.ppid == os.getpid()
        assert process.uid == os.getuid()
        assert process.ns_pids[-1] > 0
        assert process.pid_namespace == os.stat("/proc/self/ns/pid").st_ino
        assert process.net_namespace == os.stat("/proc/self/ns/net").st_ino
        assert process.exit_code is None


@pytest.mark.parametrize(("code", "status"), [("sys.exit(3)", 3 << 8), ("os.kill(os.getpid(), 9)", 9)])
def test_a_zombie_tells_how_it_ended(code: str, status: int) -> None:
    with program(f"ready()\nwait()\n{code}") as target:
        target.end()
        wait_until(lambda: state(target.pid) == "Z", "a zombie")
        process = read_light(target.pid)
        assert process is not None
        assert (process.state, process.exit_code) == ("Z", status)


def test_no_process_is_none_not_an_error() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert read_light(child.pid) is None


def test_reads_are_bounded() -> None:
    assert len(procfs.read_once("/proc/self/status", 10)) == 10
    assert len(procfs.read_all("/proc/self/maps", 100)) == 100
    assert len(procfs.read_all("/proc/self/maps", 1 << 20)) > 4096


def test_status_of_a_kernel_without_namespaces() -> None:
    status = procfs.parse_status(b"Name:\tx\nUid:\t5\t6\t7\t8\nTracerPid:\t0\nCapEff:\t0000000000080000\n")
    assert status == procfs.Status(uid=5, effective_uid=6, ns_pids=(), tracer_pid=0, cap_effective=1 << 19)


def test_kernel_threads_are_told_apart() -> None:
    assert procfs.parse_stat(b"2 (kthreadd) S 0 0 0 0 -1 2129984 " + TAIL.split(b" ", 7)[7]).kernel_thread
    assert not procfs.read_stat(os.getpid()).kernel_thread
