"""A process with a page of memory that never comes: whoever reads it waits for a file system that does not answer.

On a line of input it asks for more memory, which waits for such a reader, and from then on nobody can read its command
line. Its parent, which serves the file system, is killed first: then everything that waits is let go.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.programs.fuse import FILE_NAME, mount_privately, serve_all_but_reads

_PROT_READ, _MAP_PRIVATE = 1, 2
_PR_SET_PDEATHSIG = 1


def own_page(directory: str) -> None:
    """Map the file, tell pid and address, and take more memory when told to."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    file = os.open(os.path.join(directory, FILE_NAME), os.O_RDONLY)
    address = libc.mmap(None, ctypes.c_size_t(4096), _PROT_READ, _MAP_PRIVATE, file, ctypes.c_long(0))
    print(json.dumps([os.getpid(), address]), flush=True)
    sys.stdin.readline()
    mmap.mmap(-1, 1 << 20)
    sys.stdin.readline()


def main() -> None:
    """Both processes end with the one above them."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    device = mount_privately(sys.argv[1])
    if os.fork():
        serve_all_but_reads(device)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.close(device)
    own_page(sys.argv[1])


if __name__ == "__main__":
    main()
