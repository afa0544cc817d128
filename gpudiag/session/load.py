"""Reads a recording. The file may come from anybody, so nothing in it is believed before it is checked."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zipfile
import zlib
from pathlib import Path
from typing import IO, TypeVar

import msgspec
from msgspec import Struct

from gpudiag.errors import RecordingError
from gpudiag.model.decoding import decode_json
from gpudiag.model.log import ServerLog
from gpudiag.model.snapshot import SNAPSHOT_SCHEMA, Observation
from gpudiag.rules.log_verdict import explain_log
from gpudiag.session.bundle import (
    LOG,
    MANIFEST,
    MAX_FILE_BYTES,
    MAX_MEMBERS,
    MAX_RATIO,
    MAX_UNPACKED_BYTES,
    MEMBER,
    OBSERVATION,
    RATIO_APPLIES_FROM_BYTES,
    RECORDING_SCHEMA,
    REDACTIONS,
    Manifest,
)
from gpudiag.session.redact import RedactionReport

T = TypeVar("T")

_RECORD_AGAIN = "record again with: gpudiag attach PID --record FILE"
_YEAR_3000 = 32503680000.0
MAX_PROCESSES = 8192
"""In one look. A server of eight GPUs has some hundred, its compile pools included."""
MAX_ALL_PROCESSES = 65_536
"""In all looks together, of which there may be a hundred."""
MAX_ROOTS = 128
"""Of servers in one look; each is judged by itself."""
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError, OSError)
"""What zipfile raises on damaged or hostile input (RuntimeError: encrypted; NotImplementedError: unknown method)."""


class Recording(Struct, frozen=True, kw_only=True):
    """A recording that passed every check."""

    observation: Observation
    manifest: Manifest
    redactions: RedactionReport
    logs: tuple[ServerLog, ...] = ()


class _Schema(Struct, frozen=True):
    schema: str


def is_recording(path: Path) -> bool:
    """Whether a file looks like a recording: a zip file, whatever its name. False for what cannot be read."""
    try:
        with _open(path) as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    except (RecordingError, OSError):
        return False


def load(path: Path) -> Recording:
    """Read a recording. Raises RecordingError with one line if the file is missing, truncated, hostile or of another version."""
    with _open(path) as file:
        try:
            bundle = zipfile.ZipFile(file)
        except _BROKEN as error:
            raise RecordingError(f"{path} is truncated or no recording", help=_RECORD_AGAIN) from error
        with bundle:
            sizes = _checked_members(bundle, path)
            manifest = _manifest(_read(bundle, MANIFEST, sizes, path), path)
            if set(manifest.contents) != set(sizes) - {MANIFEST}:
                raise RecordingError(f"{path} is damaged: its manifest lists other contents than it has", help=_RECORD_AGAIN)
            observation = _decode(_verified(bundle, OBSERVATION, sizes, manifest, path), Observation, OBSERVATION, path)
            redactions = _decode(_verified(bundle, REDACTIONS, sizes, manifest, path), RedactionReport, REDACTIONS, path)
            logs = tuple(
                _decode(_verified(bundle, name, sizes, manifest, path), ServerLog, name, path)
                for name in sorted(sizes)
                if LOG.fullmatch(name)
            )
    _check_observation(observation, path)
    for log in logs:
        _check_log(log, path)
    return Recording(observation=observation, manifest=manifest, redactions=redactions, logs=logs)


def _open(path: Path) -> IO[bytes]:
    """Open a regular file of bounded size. O_NONBLOCK: opening a FIFO must not wait for a writer."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise RecordingError(f"cannot read {path}: {reason}", help="gpudiag explain FILE") from error
    status = os.fstat(handle)
    problem = None
    if not stat.S_ISREG(status.st_mode):
        problem = f"{path} is no regular file"
    elif status.st_size > MAX_FILE_BYTES:
        problem = f"{path} is larger than a recording may be ({MAX_FILE_BYTES >> 20} MB)"
    if problem:
        os.close(handle)
        raise RecordingError(problem, help="gpudiag explain FILE")
    return open(handle, "rb")


def _checked_members(bundle: zipfile.ZipFile, path: Path) -> dict[str, int]:
    """Unpacked size by member name, after every limit. The sizes are what the archive claims; `_read` holds it to them."""
    members = bundle.infolist()
    sizes = {m.filename: m.file_size for m in members}
    if len(members) > MAX_MEMBERS or len(sizes) != len(members) or not all(MEMBER.fullmatch(name) for name in sizes):
        raise RecordingError(f"{path} is no recording of gpudiag: it holds other files", help=_RECORD_AGAIN)
    missing = {MANIFEST, OBSERVATION, REDACTIONS} - set(sizes)
    if missing:
        raise RecordingError(f"{path} is no recording of gpudiag: it lacks {', '.join(sorted(missing))}", help=_RECORD_AGAIN)
    total = sum(sizes.values())
    packed = sum(m.compress_size for m in members)
    if total > MAX_UNPACKED_BYTES or (total > RATIO_APPLIES_FROM_BYTES and total > MAX_RATIO * packed):
        raise RecordingError(f"{path} would unpack to {total >> 20} MB, more than a recording may", help=_RECORD_AGAIN)
    return sizes


def _read(bundle: zipfile.ZipFile, name: str, sizes: dict[str, int], path: Path) -> bytes:
    try:
        with bundle.open(name) as member:
            data = member.read(sizes[name] + 1)
    except _BROKEN as error:
        raise RecordingError(f"{path} is truncated or damaged in {name}", help=_RECORD_AGAIN) from error
    if len(data) != sizes[name]:
        raise RecordingError(f"{path} is damaged: {name} has another size than it says", help=_RECORD_AGAIN)
    return data


def _verified(bundle: zipfile.ZipFile, name: str, sizes: dict[str, int], manifest: Manifest, path: Path) -> bytes:
    data = _read(bundle, name, sizes, path)
    if hashlib.sha256(data).hexdigest() != manifest.contents[name].sha256:
        raise RecordingError(f"{path} was changed after it was written: {name} does not match its checksum", help=_RECORD_AGAIN)
    return data


def _manifest(data: bytes, path: Path) -> Manifest:
    schema = _decode(data, _Schema, MANIFEST, path).schema
    if schema != RECORDING_SCHEMA:
        raise _other_version(path, schema, RECORDING_SCHEMA)
    return _decode(data, Manifest, MANIFEST, path)


def _decode(data: bytes, kind: type[T], name: str, path: Path) -> T:
    try:
        return decode_json(data, kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RecordingError(f"{path} is damaged: {name} does not have the form of a recording ({_one_line(error)})") from error


def _check_observation(observation: Observation, path: Path) -> None:
    if not observation.snapshots:
        raise RecordingError(f"{path} holds no look at a server", help=_RECORD_AGAIN)
    counts = [len(s.processes) for s in observation.snapshots]
    if max(counts) > MAX_PROCESSES or sum(counts) > MAX_ALL_PROCESSES:
        raise RecordingError(
            f"{path} holds {max(counts)} processes, {sum(counts)} in all its looks: more than a recording may "
            f"({MAX_PROCESSES}, {MAX_ALL_PROCESSES})"
        )
    for snapshot in observation.snapshots:
        if len(snapshot.roots) > MAX_ROOTS:
            raise RecordingError(f"{path} holds {len(snapshot.roots)} servers, more than a recording may ({MAX_ROOTS})")
        if snapshot.schema != SNAPSHOT_SCHEMA:
            raise _other_version(path, snapshot.schema, SNAPSHOT_SCHEMA)
        if not 0 <= snapshot.at < _YEAR_3000:
            raise RecordingError(f"{path} is damaged: it was recorded at a time that does not exist", help=_RECORD_AGAIN)


def _check_log(log: ServerLog, path: Path) -> None:
    """Hold the log to what the rules take for granted of one that gpudiag read itself: numbers that are numbers, and so on.

    The rules say that best, and cost milliseconds.
    """
    if log.facts is None:
        return
    try:
        explain_log(log.facts, version="")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise RecordingError(f"{path} is damaged: what it says of a log cannot be ({_one_line(error)})") from error


def _other_version(path: Path, found: str, known: str) -> RecordingError:
    shown = found if re.fullmatch(r"[A-Za-z0-9./_-]{1,60}", found) else "unknown"
    return RecordingError(
        f"{path} was written by another version of gpudiag (format {shown}, this one reads {known})",
        help="pip install --upgrade gpudiag",
    )


def _one_line(error: BaseException) -> str:
    """The parser's message without characters that a hostile file could smuggle into the terminal."""
    return re.sub(r"[^\x20-\x7e]", "?", str(error))[:160]
