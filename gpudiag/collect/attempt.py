"""One attempt to read something of a process, as a Reading."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from gpudiag.collect import access
from gpudiag.collect.python_target import UnsupportedPythonError
from gpudiag.model.reading import Failed, Ok, Unavailable

T = TypeVar("T")


def reading(pid: int, read: Callable[[], T], *, attach: bool = False) -> Ok[T] | Unavailable | Failed:
    """Run `read` and say how it went. `attach` if the kernel asks for ptrace-attach rights (Yama restricts those)."""
    at = time.time()
    started = time.perf_counter()
    try:
        value = read()
    except (FileNotFoundError, ProcessLookupError):
        return access.gone(pid)
    except PermissionError:
        return access.refused(pid, attach=attach)
    except OSError as error:
        return Failed(error=str(error))
    except UnsupportedPythonError as error:
        return Unavailable(reason=str(error), help="stacks and everything else are still read")
    except ValueError as error:
        return Failed(error=f"unexpected content: {error}")
    return Ok(value=value, at=at, took_s=time.perf_counter() - started)
