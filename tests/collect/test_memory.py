"""TargetMemory against real processes."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess

import pytest

from gpudiag.collect.memory import READ_LIMIT, TargetMemory

PAGE = os.sysconf("SC_PAGESIZE")


def test_reads_bytes_and_pointers_of_a_process() -> None:
    buffer = ctypes.create_string_buffer(b"\x2a" + bytes(7) + b"tail")
    with TargetMemory(os.getpid()) as memory:
        assert memory.read(ctypes.addressof(buffer), 12) == b"\x2a" + bytes(7) + b"tail"
        assert memory.pointer(ctypes.addressof(buffer)) == 42


@pytest.mark.parametrize("address", [0, -8, 8, 1 << 47, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, 1 << 70])
def test_an_address_that_is_not_mapped_is_an_oserror(address: int) -> None:
    with TargetMemory(os.getpid()) as memory, pytest.raises(OSError):
        memory.pointer(address)


@pytest.mark.parametrize("size", [-1, READ_LIMIT + 1, 1 << 62, 1 << 80])
def test_a_size_beyond_the_limit_is_refused_before_anything_is_read(size: int) -> None:
    buffer = ctypes.create_string_buffer(16)
    with TargetMemory(os.getpid()) as memory, pytest.raises(OSError) as error:
        memory.read(ctypes.addressof(buffer), size)
    assert error.value.errno == errno.EINVAL


def test_a_read_that_crosses_into_an_unmapped_page_is_an_oserror() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    start = libc.mmap(None, 2 * PAGE, 0x3, 0x22, -1, 0)
    assert libc.munmap(ctypes.c_void_p(start + PAGE), ctypes.c_size_t(PAGE)) == 0
    try:
        with TargetMemory(os.getpid()) as memory:
            assert memory.read(start + PAGE - 8, 8) == bytes(8)
            with pytest.raises(OSError) as error:
                memory.read(start + PAGE - 8, 16)
        assert error.value.errno == errno.EFAULT
    finally:
        libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(PAGE))


def test_a_process_that_ended_is_an_oserror_not_empty_bytes() -> None:
    buffer = ctypes.create_string_buffer(8)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child, TargetMemory(child.pid) as memory:
        assert child.stdin is not None
        child.stdin.close()
        child.wait(10)
        with pytest.raises(OSError):
            memory.pointer(ctypes.addressof(buffer))
        with pytest.raises(OSError) as error:
            memory.require_alive()
        assert error.value.errno == errno.ESRCH
    with pytest.raises(OSError):
        TargetMemory(child.pid)


def test_a_process_that_is_there_is_alive() -> None:
    with TargetMemory(os.getpid()) as memory:
        memory.require_alive()


def test_closed_memory_is_an_oserror() -> None:
    memory = TargetMemory(os.getpid())
    memory.close()
    memory.close()
    with pytest.raises(OSError) as error:
        memory.read(4096, 1)
    assert error.value.errno == errno.EBADF
