"""Runs torchside/eagle3 in a child whose interpreter has torch: one request in, progress and one result out."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from gpudiag.assets import asset
from gpudiag.collect.parent_death import dying_with_me
from gpudiag.doctor import install, interpreter, probe
from gpudiag.errors import GpudiagError, NotInspectableError, UsageError
from gpudiag.model.reading import Ok, Unavailable

Progress = Callable[[dict[str, Any]], None]

_LINE_BYTES: Final = 256 << 20
_LAST_WORDS: Final = 4096
_END_S: Final = 5.0
_IMPORT_S: Final = 60.0
_REFUSED: Final = 3
_DROPPED: Final = frozenset({"PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE"})
_START: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from eagle3.__main__ import main; sys.exit(main(sys.argv[1]))"


class ChildError(GpudiagError):
    """The child broke: a bug, or a machine that ended it."""


def choose(python: str | None, command: str) -> str:
    """The interpreter to compute with: the one named, else ours, else that of an engine. Raises UsageError without torch."""
    candidates = [python] if python else [sys.executable, interpreter.choose(os.environ, None)]
    for candidate in candidates:
        if candidate and interpreter.has_any(candidate, ("torch",)):
            return candidate
    if python and _imports_torch(python):
        return python
    where = f"{python} has no torch" if python else "no interpreter here has torch"
    raise UsageError(
        f"gpudiag {command} computes with torch in a child process, and {where}",
        help=f"pip install 'gpudiag[drafter]'\ngpudiag {command} ... --python /path/to/the/server/venv/bin/python",
    )


def _imports_torch(python: str) -> bool:
    """Whether a named interpreter has torch where its prefix does not show it: a wrapper, PYTHONPATH, a .pth file."""
    reading = install.imports(python, ("torch",), _IMPORT_S)
    return isinstance(reading, Ok) and all(found.outcome == "ok" for found in reading.value)


def run(
    request: Mapping[str, Any], *, python: str, progress: Progress, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The child's result. Raises NotInspectableError for what it refuses to compute, ChildError if it breaks.

    There is no deadline: how long it takes depends on the model. An interrupt ends the child with everything it started.
    """
    who = probe.owner(python)
    if isinstance(who, Unavailable):
        raise NotInspectableError(who.reason, help="--python names an interpreter of your own")
    with _request_file(request, who) as file, tempfile.TemporaryFile() as said:
        process = _start(python, file, said, who, environment or {})
        try:
            result = _listen(process, progress)
            status = process.wait()
        finally:
            _end(process)
        return _checked(result, status, said)


@contextlib.contextmanager
def _request_file(request: Mapping[str, Any], uid: int | None) -> Iterator[str]:
    """The request in a file that only its reader may read: it holds the token ids of somebody's prompts."""
    handle, name = tempfile.mkstemp(prefix="gpudiag-", suffix=".json")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(request, file)
        if uid is not None:
            os.chown(name, uid, -1)
        yield name
    finally:
        os.unlink(name)


def _start(python: str, file: str, said: IO[bytes], uid: int | None, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    place = str(asset("torchside", "eagle3/__main__.py").parent.parent)
    # Threads that wait spinning take the cores from those that work, where a server runs on the same ones.
    variables = {"OMP_WAIT_POLICY": "PASSIVE"} | {k: v for k, v in os.environ.items() if k not in _DROPPED}
    variables |= {"HF_HUB_OFFLINE": "1", **environment}
    extra: dict[str, Any] = {}
    if uid is not None:
        record = pwd.getpwuid(uid)
        variables |= {"HOME": record.pw_dir, "USER": record.pw_name, "LOGNAME": record.pw_name}
        extra = {"user": uid, "group": record.pw_gid, "extra_groups": os.getgrouplist(record.pw_name, record.pw_gid)}
    try:
        return subprocess.Popen(
            [python, "-B", "-c", _START, place, file],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            cwd="/",
            env=variables,
            start_new_session=True,
            # It calls nothing that another thread may have locked.
            preexec_fn=dying_with_me(),  # noqa: PLW1509
            **extra,
        )
    except OSError as error:
        raise NotInspectableError(f"{python} cannot be run: {error.strerror}", help="--python names another one") from None


def _listen(process: subprocess.Popen[bytes], progress: Progress) -> dict[str, Any] | None:
    """Hand on what the child says until it has said its last; its result or refusal."""
    last = None
    out = process.stdout
    while out is not None and (line := out.readline(_LINE_BYTES)):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") in ("result", "refused"):
            last = event
        elif isinstance(event, dict):
            progress(event)
    return last


def _checked(result: dict[str, Any] | None, status: int, said: IO[bytes]) -> dict[str, Any]:
    if result is not None and result["event"] == "refused":
        raise NotInspectableError(str(result.get("why"))[:500], help="gpudiag drafter check DRAFT --target DIR")
    if result is not None and status == 0:
        return result
    said.seek(max(0, os.fstat(said.fileno()).st_size - _LAST_WORDS))
    words = [line.strip() for line in said.read().decode("utf-8", "replace").splitlines() if line.strip()]
    if status == -signal.SIGKILL:
        raise ChildError(
            "the child that computes with torch was killed, by the kernel if memory ran out",
            help="dmesg | tail, then fewer or shorter texts, or --device cuda",
        )
    raise ChildError(
        f"the child that computes with torch ended with status {status}: {words[-1] if words else 'no word on stderr'}",
        help="--python names another interpreter with torch",
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    if process.stdout is not None:
        process.stdout.close()


def absolute(directory: str) -> str:
    """The child runs in '/'."""
    return str(Path(directory).resolve())
