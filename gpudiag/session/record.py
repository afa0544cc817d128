"""Writes an observation to a file that can be sent to somebody."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from gpudiag import __version__
from gpudiag.errors import RecordingError
from gpudiag.model.log import ServerLog
from gpudiag.model.snapshot import Observation
from gpudiag.session.bundle import MANIFEST, OBSERVATION, REDACTIONS, Content, Manifest
from gpudiag.session.redact import RedactionReport, Redactor


def save(
    observation: Observation,
    path: Path,
    *,
    redact: bool = True,
    command: str = "attach",
    force: bool = False,
    redactor: Redactor | None = None,
    logs: Sequence[ServerLog] = (),
) -> RedactionReport:
    """Write a recording with mode 0600, completely or not at all, and return what was taken out of it.

    `logs` are what the servers' own logs say.
    `redactor` lets several exports of one run share their placeholders. Raises RecordingError if `path` exists (and not
    `force`) or cannot be written.
    """
    redactor = redactor or Redactor()
    shown = redactor.apply(observation) if redact else observation
    told = {f"logs/server-{log.root_pid}.json": _encode(redactor.apply(log) if redact else log) for log in logs}
    report = redactor.report if redact else RedactionReport()
    members = {OBSERVATION: _encode(shown), REDACTIONS: _encode(report), **told}
    manifest = Manifest(
        gpudiag=__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        redacted=redact,
        command=command,
        contents={name: Content(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data)) for name, data in members.items()},
    )
    _write(path, _pack({MANIFEST: _encode(manifest), **members}), force=force)
    return report


def check_writable(path: Path, *, force: bool = False) -> None:
    """Raise RecordingError now if `save` to this path would fail: the look is not repeated for a mistyped file name."""
    if path.is_dir():
        raise RecordingError(f"{path} is a directory", help="name a file, for example hang.gpudiag")
    if os.path.lexists(path) and not force:
        raise _exists(path)
    folder = path.parent
    if not folder.is_dir():
        raise RecordingError(f"cannot write {path}: there is no directory {folder}", help=f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise RecordingError(f"cannot write {path}: {folder} is not writable", help="name a file in a directory of yours")


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable(value))


def encodable(value: Any) -> Any:
    r"""The value as plain data in which bytes of the target that are no UTF-8, which arrive as lone surrogates, are `\xNN`."""
    return _clean(msgspec.to_builtins(value))


def _clean(node: Any) -> Any:
    if isinstance(node, str):
        return node.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(node, dict):
        return {_clean(k): _clean(v) for k, v in node.items()}
    if isinstance(node, list | tuple):
        return [_clean(item) for item in node]
    return node


def _pack(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in members.items():
            bundle.writestr(name, data)
    return buffer.getvalue()


def _write(path: Path, data: bytes, *, force: bool) -> None:
    """Write to a temporary file beside `path` first. It is created with mode 0600, which neither link nor rename widens."""
    try:
        handle, name = tempfile.mkstemp(prefix=".gpudiag-", dir=path.parent)
    except OSError as error:
        raise RecordingError(f"cannot write {path}: {error.strerror}") from error
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _publish(name, path, force=force)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise RecordingError(f"cannot write {path}: {error.strerror}") from error
    finally:
        if os.path.lexists(name):
            os.unlink(name)


def _publish(temporary: str, path: Path, *, force: bool) -> None:
    if force:
        os.replace(temporary, path)
        return
    try:
        # Unlike rename, link refuses an existing name in one step.
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        os.rename(temporary, path)


def _exists(path: Path) -> RecordingError:
    return RecordingError(f"{path} exists and is not overwritten", help=f"name another file, or remove it: rm {path}")
