"""Runs a Python program under a seccomp filter that fails chosen system calls with EPERM, children included.

python seccomp.py ptrace,kill -- program.py ARGUMENT...
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

NUMBERS = {
    "x86_64": {
        "ptrace": 101,
        "kill": 62,
        "tkill": 200,
        "tgkill": 234,
        "pidfd_send_signal": 424,
        "openat2": 437,
        "setns": 308,
        "pidfd_open": 434,
    },
    "aarch64": {
        "ptrace": 117,
        "kill": 129,
        "tkill": 130,
        "tgkill": 131,
        "pidfd_send_signal": 424,
        "openat2": 437,
        "setns": 268,
        "pidfd_open": 434,
    },
}[os.uname().machine]
SOCKET = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
AF_NETLINK = 16

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_LOAD_NUMBER = struct.pack("=HBBI", 0x20, 0, 0, 0)
_LOAD_FIRST_ARGUMENT = struct.pack("=HBBI", 0x20, 0, 0, 16)


class _Program(ctypes.Structure):
    """struct sock_fprog, include/uapi/linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _equal(value: int, on_true: int, on_false: int) -> bytes:
    return struct.pack("=HBBI", 0x15, on_true, on_false, value)


def _give(value: int) -> bytes:
    return struct.pack("=HBBI", 0x06, 0, 0, value)


def deny(names: list[str]) -> None:
    """Install the filter in this thread. 'netlink' stands for socket(AF_NETLINK, ...)."""
    refuse = _give(_ERRNO | errno.EPERM)
    code = _LOAD_NUMBER
    for name in names:
        if name == "netlink":
            code += _equal(SOCKET, 0, 4) + _LOAD_FIRST_ARGUMENT + _equal(AF_NETLINK, 0, 1) + refuse + _LOAD_NUMBER
        else:
            code += _equal(NUMBERS[name], 0, 1) + refuse
    code += _give(_ALLOW)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(filter_), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    deny(sys.argv[1].split(","))
    os.execv(sys.executable, [sys.executable, *sys.argv[3:]])  # noqa: S606 (no shell is wanted)
