"""Threads and descriptors of real processes."""

from __future__ import annotations

import os
from pathlib import Path

from gpudiag.collect import procfs
from gpudiag.collect.fds import read_fds
from gpudiag.collect.mounts import read_mounts
from gpudiag.collect.threads import inner_tids, read_threads
from gpudiag.model.process import FileDescriptor
from tests.collect.helpers import program
from tests.support.processes import wait_until

SLEEPERS = """
lock = threading.Lock()
lock.acquire()
def spin():
    while True:
        pass
threads = [threading.Thread(target=lock.acquire, daemon=True) for _ in range(3)]
threads.append(threading.Thread(target=spin, daemon=True))
for thread in threads:
    thread.start()
ready(*(t.native_id for t in threads))
wait()
"""


def fds_of(pid: int) -> dict[int, FileDescriptor]:
    return {fd.fd: fd for fd in read_fds(pid, read_mounts(pid))}


def test_sleeping_and_running_threads() -> None:
    with program(SLEEPERS) as target:
        *sleepers, spinner = target.said
        for tid in sleepers:
            target.asleep(tid)
        before = {t.tid: t for t in read_threads(target.pid).threads}
        assert set(before) >= {target.pid, *sleepers, spinner}
        for tid in sleepers:
            assert before[tid].state == "S"
            assert "futex" in (before[tid].wchan or "")
        wait_until(lambda: procfs.run_ns(target.pid, spinner) != before[spinner].run_ns, "the spinner running")
        after = {t.tid: t for t in read_threads(target.pid).threads}
        assert [after[t].run_ns for t in sleepers] == [before[t].run_ns for t in sleepers]
        assert read_threads(target.pid).wchans_readable


def test_inner_thread_ids_are_the_outer_ones_without_a_namespace() -> None:
    assert inner_tids(os.getpid(), [os.getpid()]) == {os.getpid(): os.getpid()}


EVERY_KIND = """
import fcntl, select, socket
directory = sys.argv[1]
os.mkfifo(directory + "/fifo")
locked = open(directory + "/locked", "w")
fcntl.flock(locked, fcntl.LOCK_EX)
gone = open(directory + "/gone", "w")
os.unlink(directory + "/gone")
fifo = os.open(directory + "/fifo", os.O_RDWR)
memory = os.memfd_create("cuda")
reader, writer = os.pipe()
poll = select.epoll()
poll.register(reader)
sock = socket.socket()
null = os.open("/dev/null", os.O_RDONLY)
ready(locked.fileno(), gone.fileno(), fifo, memory, reader, writer, poll.fileno(), sock.fileno(), null)
wait()
"""


def test_every_kind_of_descriptor(tmp_path: Path) -> None:
    with program(EVERY_KIND, str(tmp_path)) as target:
        fds = fds_of(target.pid)
        locked, gone, fifo, memory, reader, writer, poll, sock, null = (fds[number] for number in target.said)
        status = os.stat(tmp_path / "locked")
        assert (locked.kind, locked.inode, locked.target) == ("file", status.st_ino, str(tmp_path / "locked"))
        assert locked.writable
        assert not locked.readable
        assert [(lock.kind, lock.mode, lock.pid) for lock in locked.locks] == [("flock", "WRITE", target.pid)]
        assert (locked.locks[0].device, locked.locks[0].inode) == (locked.device, locked.inode)
        assert gone.kind == "file"
        assert gone.target.endswith(" (deleted)")
        assert (fifo.kind, fifo.inode) == ("pipe", os.stat(tmp_path / "fifo").st_ino)
        assert memory.kind == "anon"
        assert (reader.kind, reader.readable, reader.writable) == ("pipe", True, False)
        assert (writer.kind, writer.readable, writer.writable) == ("pipe", False, True)
        assert reader.inode == writer.inode
        assert (poll.kind, poll.watches) == ("anon", (reader.fd,))
        assert sock.kind == "socket"
        assert sock.inode is not None
        assert null.kind == "device"
