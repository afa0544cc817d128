"""Hold flock(2) on a file until standard input ends, as a process of another server would; with a compiler below if one is named.

    python lock_holder.py PATH [COMPILER]

COMPILER is a link to an interpreter, so that the process goes by that name. A line on standard output says that all is so.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

BUSY = "import ctypes; ctypes.CDLL(None).prctl(1, 9); print(flush=True)\nwhile True: pass"
"""Ends with its parent, whatever ends that (PR_SET_PDEATHSIG). The link leads past what is installed here."""


def main(path: str, *compiler: str) -> None:
    handle = os.open(path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    child = subprocess.Popen([*compiler, "-c", BUSY], stdout=subprocess.PIPE) if compiler else None
    if child is not None:
        assert child.stdout is not None
        child.stdout.readline()
    print(flush=True)
    sys.stdin.read()
    if child is not None:
        child.kill()
        child.wait()


main(*sys.argv[1:])
