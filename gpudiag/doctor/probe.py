"""Runs a probe: a script in another interpreter, under a time limit, as the user who owns that interpreter."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gpudiag.assets import asset
from gpudiag.doctor.reads import attempt
from gpudiag.model.reading import Failed, Ok, Reading, Unavailable

SCHEMA: Final = "gpudiag.probe/1"
_MAX_ANSWER: Final = 64 << 20
_MAX_LAST_WORDS: Final = 2000
_END_S: Final = 2.0
_DROPPED: Final = frozenset({"PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE"})
"""Variables that make an interpreter write to stdout or wait for a terminal."""


def run(
    probe: str,
    arguments: list[str],
    *,
    python: str = sys.executable,
    limit_s: float,
    variables: Mapping[str, str] | None = None,
    own_rights: bool = False,
) -> Reading[dict[str, Any]]:
    """What the probe answered. Unavailable if the interpreter may not or cannot be run, Failed if the probe broke or hung.

    `variables` come on top of our own environment. With `own_rights` the interpreter of another user, which is otherwise
    refused to all but root, is run as ourselves: for whoever is about to run a server with it anyway.

    It runs in '/', so that nothing in the current directory shadows a module, and in a session of its own, which is killed
    as a whole when its time is up.
    """
    who = owner(python)
    if isinstance(who, Unavailable):
        if not own_rights or not os.access(python, os.X_OK):
            return who
        who = None
    script = str(asset("probes", f"{probe}.py"))
    return _answer(attempt(lambda: _run(script, arguments, python, who, limit_s, variables or {})), python, limit_s)


def owner(python: str) -> int | Unavailable | None:
    """The user to run an interpreter as: None for ourselves, another uid if we are root and it belongs to that user.

    Never another user's interpreter with our rights: it runs whatever its owner put into its site-packages.
    """
    try:
        # The link in a virtual environment belongs to whoever made it, though it leads to a system interpreter.
        link, program = os.lstat(python), os.stat(python)
    except OSError as error:
        return Unavailable(reason=f"{python}: {error.strerror}", help="gpudiag doctor --python /path/to/venv/bin/python")
    others = [uid for uid in (link.st_uid, program.st_uid) if uid not in (0, os.geteuid())]
    if not others:
        return None
    if os.geteuid() == 0:
        return others[0]
    name = _name(others[0])
    return Unavailable(
        reason=f"{python} belongs to {name}, and is not run with your rights",
        help=f"sudo -u {name} gpudiag doctor --python {python}",
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


_running: set[subprocess.Popen[bytes]] = set()


def end_all() -> None:
    """Kill every probe that runs, in whatever thread: for a program that is interrupted and will not wait for them."""
    for process in tuple(_running):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class _Ended:
    """How a probe's process ended."""

    def __init__(self, status: int | None, answer: bytes, said: bytes) -> None:
        self.status = status
        self.answer = answer
        self.last_words = said.decode("utf-8", "replace").strip()[-_MAX_LAST_WORDS:]


def _run(script: str, arguments: list[str], python: str, uid: int | None, limit_s: float, variables: Mapping[str, str]) -> _Ended:
    environment = {k: v for k, v in os.environ.items() if k not in _DROPPED} | dict(variables)
    extra: dict[str, Any] = {}
    if uid is not None:
        record = pwd.getpwuid(uid)
        environment |= {"HOME": record.pw_dir, "USER": record.pw_name, "LOGNAME": record.pw_name}
        extra = {"user": uid, "group": record.pw_gid, "extra_groups": os.getgrouplist(record.pw_name, record.pw_gid)}
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as said:
        # The source comes by stdin: another user need not be able to read our installation, and no directory of ours
        # gets onto its module path.
        process = subprocess.Popen(
            [python, "-B", "-", *arguments],
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=said,
            cwd="/",
            env=environment,
            start_new_session=True,
            **extra,
        )
        _running.add(process)
        try:
            process.communicate(Path(script).read_bytes(), timeout=limit_s)
            status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _running.discard(process)
            _end(process)
        answer.seek(0)
        said.seek(0)
        return _Ended(status, answer.read(_MAX_ANSWER), said.read(1 << 20))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the probe's session. One that the kernel does not let die is left behind, not waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _answer(ended: Ok[_Ended] | Unavailable | Failed, python: str, limit_s: float) -> Reading[dict[str, Any]]:
    if isinstance(ended, Unavailable):
        return Unavailable(
            reason=f"{python} cannot be run: {ended.reason}", help="gpudiag doctor --python /path/to/venv/bin/python"
        )
    if isinstance(ended, Failed):
        return Unavailable(
            reason=f"{python} cannot be run: {ended.error}", help="gpudiag doctor --python /path/to/venv/bin/python"
        )
    end = ended.value
    if end.status is None:
        return Failed(error=f"no answer from {python} within {limit_s:g} s")
    if end.status != 0:
        last = end.last_words.splitlines()[-1] if end.last_words else "nothing on stderr"
        return Failed(error=f"{python} ended with status {end.status}: {last}")
    try:
        read = json.loads(_object(end.answer))
    except (ValueError, RecursionError):
        return Failed(error=f"{python} did not answer in JSON: {end.answer[:200].decode('utf-8', 'replace')!r}")
    if not isinstance(read, dict) or read.get("schema") != SCHEMA:
        return Failed(error=f"{python} answered with another schema: {str(read)[:200]}")
    return Ok(value=read, at=ended.at, took_s=ended.took_s)


def _object(answer: bytes) -> bytes:
    """The last line: what is imported into the target may print before the probe does."""
    lines = answer.strip().splitlines()
    return lines[-1] if lines else b""
