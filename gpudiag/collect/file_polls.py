"""Which file a polling loop waits for: `while os.path.exists(path): time.sleep(...)` and its relatives.

Only paths leave this module. The expression comes from the source of the frame, its value from the target's memory.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from typing import Final, Literal

from gpudiag.collect.expressions import Expressions, Place
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.pyobject import PyObjects
from gpudiag.collect.pystructs import MAX_TEXT
from gpudiag.collect.python_target import supported_layout
from gpudiag.collect.source import Function, Unreadable
from gpudiag.collect.source_files import SourceFiles
from gpudiag.collect.syntax_polls import WORDS, Poll, polls_at
from gpudiag.collect.target_files import working_directory
from gpudiag.model.stack import FilePoll, PyStack

_STANDARD_LIBRARY: Final = re.compile(r"/lib/python3\.\d+/(?!(?:site|dist)-packages/)|^<frozen ")
_FILELOCK: Final = re.compile(r"/filelock/(?:_api|_core/_acquire)\.py$")
_FILELOCK_LOOPS: Final = ("acquire", "_poll_until_acquired")
"""Methods that poll: the first up to filelock 3.18, the second in 3.32 and in 4.3."""
_TVM_LOCK: Final = re.compile(r"/tvm_ffi/utils/lockfile\.py$")
"""FileLock.blocking_acquire of apache-tvm-ffi 0.1 asks for flock(2) again and again."""
_PATH_MODULES: Final = frozenset({"posixpath", "genericpath", "os", "posix"})
_KNOWN_CALLS: Final = frozenset({"os.path", "os", "posixpath"})
_MAX_PARTS: Final = 64
_MAX_DEPTH: Final = 8


def file_polls(pid: int, python_version: str | None, stacks: tuple[PyStack, ...], memory: TargetMemory) -> tuple[FilePoll, ...]:
    """The files that threads wait for in a loop, as absolute paths in the target's file system.

    A frame counts if everything it called is the standard library (a sleep, a stat): a loop whose body does other work
    is not waiting. filelock's SoftFileLock waits for its file to be gone; its FileLock asks for flock(2) again and again
    without waiting in it, so that the kernel's lock table shows who has the lock but not who wants it.

    Raises UnsupportedPythonError for a version whose objects gpudiag cannot read, OSError if the target is gone.
    """
    look = _Look(pid, stacks, PyObjects(memory, supported_layout(python_version)))
    found = tuple(poll for stack in stacks for poll in look.polls(stack))
    memory.require_alive()
    return found


class _Look:
    def __init__(self, pid: int, stacks: tuple[PyStack, ...], objects: PyObjects) -> None:
        self._pid = pid
        self._objects = objects
        self._expressions = Expressions(objects, stacks)
        self._sources = SourceFiles(pid)

    def polls(self, stack: PyStack) -> Iterator[FilePoll]:
        """The polls of the innermost frame that is not the standard library's."""
        index = next((i for i, f in enumerate(stack.frames) if not _STANDARD_LIBRARY.search(f.file)), None)
        if index is None:
            return
        frame = stack.frames[index]
        if _FILELOCK.search(frame.file):
            yield from self._filelock(stack, index)
            return
        if _TVM_LOCK.search(frame.file):
            yield from self._tvm_lock(stack, index)
            return
        function = self._sources.function(frame.file, frame.function, frame.line, ("while ", "while("), WORDS)
        if isinstance(function, Unreadable):
            return
        place = Place(stack, index, function)
        for poll in _polls_at(function, frame.line):
            if poll.function is not None and not self._asks_for_files(poll.function, place):
                continue
            path = self._absolute(self._text(poll.path, place))
            if path is not None:
                yield FilePoll(tid=stack.tid, frame=index, path=path, until=poll.until, expression=ast.unparse(poll.path))

    def _filelock(self, stack: PyStack, index: int) -> Iterator[FilePoll]:
        """Releases 3 and 4 of filelock keep the path in the local `lock_filename` while they poll; the lock has it per thread."""
        frame = stack.frames[index]
        lock = frame.locals.get("self")
        names = (self._objects.type_names(lock) or ()) if lock is not None else ()
        soft = any(name.endswith(".SoftFileLock") for name in names)
        if frame.function.rsplit(".", 1)[-1] not in _FILELOCK_LOOPS:
            return
        path = self._absolute(self._path(frame.locals.get("lock_filename")))
        if path is not None:
            until: Literal["gone", "unlocked"] = "gone" if soft else "unlocked"
            yield FilePoll(tid=stack.tid, frame=index, path=path, until=until, expression="self.lock_file")

    def _tvm_lock(self, stack: PyStack, index: int) -> Iterator[FilePoll]:
        frame = stack.frames[index]
        lock = frame.locals.get("self")
        if lock is None or not frame.function.endswith("blocking_acquire"):
            return
        path = self._absolute(self._path(self._objects.attribute(lock, "lock_file_path")))
        if path is not None:
            yield FilePoll(tid=stack.tid, frame=index, path=path, until="unlocked", expression="self.lock_file_path")

    def _asks_for_files(self, function: ast.expr, place: Place) -> bool:
        """Whether a function is one of os or os.path, and not, say, a key-value store's exists(key)."""
        if isinstance(function, ast.Name):
            address = self._expressions.address(function, place)
            return address is None or self._module_of(address) in (*_PATH_MODULES, "io", None)
        if not isinstance(function, ast.Attribute):
            return False
        if ast.unparse(function.value) in _KNOWN_CALLS:
            return True
        module = self._expressions.address(function.value, place)
        namespace = self._objects.module_dict(module) if module is not None else None
        name = self._objects.item(namespace, "__name__") if namespace is not None else None
        return name is not None and self._objects.text(name) in _PATH_MODULES

    def _module_of(self, function: int) -> str | None:
        """Module of a Python function; None for a built-in one."""
        found = self._objects.function(function)
        name = self._objects.item(found.globals, "__name__") if found else None
        return self._objects.text(name) if name is not None else None

    def _text(self, expression: ast.expr, place: Place, depth: int = 0) -> str | None:
        """The path that an expression stands for."""
        if depth > _MAX_DEPTH:
            return None
        if isinstance(expression, ast.Constant):
            return expression.value if isinstance(expression.value, str) else None
        if isinstance(expression, ast.JoinedStr):
            return _joined("", [self._part(value, place, depth) for value in expression.values])
        if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add | ast.Div):
            parts = [self._text(side, place, depth + 1) for side in (expression.left, expression.right)]
            return _joined("" if isinstance(expression.op, ast.Add) else "/", parts)
        if isinstance(expression, ast.Call):
            return self._called(expression, place, depth)
        return self._path(self._expressions.address(expression, place))

    def _part(self, value: ast.expr, place: Place, depth: int) -> str | None:
        if not isinstance(value, ast.FormattedValue):
            return self._text(value, place, depth + 1)
        if value.format_spec is not None or value.conversion not in (-1, ord("s")):
            return None
        text = self._text(value.value, place, depth + 1)
        if text is not None:
            return text
        address = self._expressions.address(value.value, place)
        number = self._objects.integer(address) if address is not None else None
        return None if number is None else str(number)

    def _called(self, call: ast.Call, place: Place, depth: int) -> str | None:
        name = ast.unparse(call.func)
        if call.keywords or len(call.args) > _MAX_PARTS:
            return None
        if name in ("os.path.join", "path.join", "osp.join", "posixpath.join", "Path", "pathlib.Path") and call.args:
            return _joined("/", [self._text(argument, place, depth + 1) for argument in call.args])
        if name in ("str", "os.fspath", "os.fsdecode", "os.path.abspath", "os.path.normpath") and len(call.args) == 1:
            return self._text(call.args[0], place, depth + 1)
        return None

    def _path(self, address: int | None) -> str | None:
        """A str, or the path of a pathlib object."""
        if address is None:
            return None
        text = self._objects.text(address)
        if text is not None or "pathlib" not in "".join(self._objects.type_names(address) or ()):
            return text
        # str(path) is kept in `_str` from its first use on (Lib/pathlib.py 3.11, 3.12; Lib/pathlib/_local.py 3.13).
        shown = self._objects.attribute(address, "_str")
        if shown is not None:
            return self._objects.text(shown)
        raw = self._objects.attribute(address, "_raw_paths") or self._objects.attribute(address, "_parts")
        parts = self._objects.items(raw, _MAX_PARTS) if raw is not None else None
        return _joined("/", [self._objects.text(part) for part in parts]) if parts else None

    def _absolute(self, path: str | None) -> str | None:
        if not path or "\0" in path or len(path) > MAX_TEXT or not _is_unicode(path):
            return None
        whole = path if path.startswith("/") else posixpath.join(working_directory(self._pid), path)
        # After a symlink '..' is not the way back, so such a path stays as it is.
        return whole if ".." in whole.split("/") else posixpath.normpath(whole)


def _polls_at(function: Function, line: int) -> tuple[Poll, ...]:
    try:
        return polls_at(function.node, line)
    except RecursionError:
        # Only a source made for it is nested that deeply.
        return ()


def _joined(separator: str, parts: list[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return posixpath.join(*known) if separator else "".join(known)


def _is_unicode(path: str) -> bool:
    """Whether a path can be written as UTF-8; a name with undecodable bytes has lone surrogates."""
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)
