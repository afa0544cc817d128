"""Flight recorders of a target: its dumps, and the pipe through which it is asked for one. Runs in the guarded child."""

from __future__ import annotations

import os
import stat

from gpudiag.collect.flight_request import DumpsReply, DumpsRequest, PipeReply, PipeRequest, Written
from gpudiag.collect.rooted import Root
from gpudiag.collect.target_files import working_directory


def find_dumps(request: DumpsRequest) -> DumpsReply:
    """None of the files where the root of the process may not be entered."""
    found: dict[str, Written] = {}
    try:
        with Root(request.pid) as root:
            for path in request.paths:
                absolute = path if path.startswith("/") else os.path.join(working_directory(request.pid), path)
                if (written := _written(root, absolute)) is not None:
                    found[path] = written
    except OSError:
        return DumpsReply(found=found)
    return DumpsReply(found=found)


def _written(root: Root, path: str) -> Written | None:
    try:
        fd = root.open_path(path)
    except (OSError, UnicodeEncodeError):
        return None
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    return Written(at_ns=status.st_mtime_ns, size_bytes=status.st_size) if stat.S_ISREG(status.st_mode) else None


def ask(request: PipeRequest) -> PipeReply:
    """Never waits: a pipe that nobody reads refuses to be opened, one that is full refuses the byte."""
    try:
        # The descriptor of the process itself, so that no path can lead to another pipe.
        known = os.open(f"/proc/{request.pid}/fd/{request.fd}", os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISFIFO(os.fstat(known).st_mode):
                return PipeReply(error="it is no pipe any more")
            pipe = os.open(f"/proc/self/fd/{known}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        finally:
            os.close(known)
        try:
            os.write(pipe, b"1")
        finally:
            os.close(pipe)
    except OSError as error:
        return PipeReply(error=error.strerror or str(error))
    return PipeReply()
