"""What `py-spy dump --json` prints, as stacks. Reprs of values end here: they may hold prompts or secrets.

Shape as of py-spy 0.4.3 (src/stack_trace.rs): a list of threads with their frames innermost first.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

import msgspec
from msgspec import Struct

from gpudiag.model.stack import Frame, PyStack

PathFilter = Callable[[AbstractSet[str]], AbstractSet[str]]
"""Which of these paths exist on the target's file system."""

_LARGEST_NUMBER = 1 << 31
_LONGEST_NUMBER = 11
_LONGEST_PATH = 4096


class _Local(Struct):
    name: str
    addr: int
    repr: str | None = None


class _Frame(Struct):
    name: str
    filename: str
    line: int
    module: str | None = None
    locals: list[_Local] | None = None


class _Thread(Struct):
    thread_id: int
    active: bool
    owns_gil: bool
    frames: list[_Frame]
    thread_name: str | None = None
    os_thread_id: int | None = None


_decoder = msgspec.json.Decoder(list[_Thread])


def parse_dump(raw: bytes, existing: PathFilter) -> tuple[PyStack, ...]:
    """The stacks of one dump. Threads whose OS id py-spy could not tell are left out.

    Raises msgspec.DecodeError or msgspec.ValidationError on anything but a complete dump.
    """
    try:
        threads = _decoder.decode(raw)
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
    candidates = {
        path for thread in threads for frame in thread.frames for local in frame.locals or () if (path := _path(local.repr))
    }
    paths = existing(candidates) if candidates else frozenset()
    return tuple(_stack(thread, thread.os_thread_id, paths) for thread in threads if thread.os_thread_id)


def _stack(thread: _Thread, tid: int, paths: AbstractSet[str]) -> PyStack:
    return PyStack(
        tid=tid,
        name=thread.thread_name,
        ident=thread.thread_id,
        active=thread.active,
        owns_gil=thread.owns_gil,
        frames=tuple(_frame(frame, paths) for frame in thread.frames),
    )


def _frame(frame: _Frame, paths: AbstractSet[str]) -> Frame:
    locals_ = frame.locals or []
    values = {local.name: value for local in locals_ if (value := _value(local.repr, paths)) is not None}
    return Frame(
        function=frame.name,
        file=frame.filename,
        line=frame.line,
        native=frame.module is not None,
        locals={local.name: local.addr for local in locals_},
        values=values,
    )


def _value(shown: str | None, paths: AbstractSet[str]) -> str | None:
    if shown is None:
        return None
    if _is_number(shown):
        return shown
    path = _path(shown)
    return path if path in paths else None


def _is_number(shown: str) -> bool:
    digits = shown.removeprefix("-")
    return len(shown) <= _LONGEST_NUMBER and digits.isascii() and digits.isdigit() and int(digits) < _LARGEST_NUMBER


def _path(shown: str | None) -> str | None:
    """The absolute path that a quoted string shows; py-spy puts quotes around it and hardly escapes."""
    if shown is None or not shown.startswith('"/') or not shown.endswith('"') or "\0" in shown:
        return None
    return shown[1:-1] if len(shown) <= _LONGEST_PATH else None
