"""The options of an installed engine, asked of the engine itself and remembered while its files stay as they are."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from gpudiag import config
from gpudiag.doctor import probe
from gpudiag.doctor.install import absolute
from gpudiag.doctor.reads import bounded
from gpudiag.engines.launching import DIALECTS
from gpudiag.files import remember
from gpudiag.model.decoding import decode_json
from gpudiag.model.flags import FlagTable
from gpudiag.model.reading import Failed, Ok, Reading

LIMIT_S: Final = 120.0
_MAX_CACHE: Final = 8 << 20
_MOST_FILES: Final = 20
_MARKS: Final = {"sglang": "SGLANG_", "vllm": "VLLM_"}


class _Remembered(Struct, frozen=True, kw_only=True):
    """An answer and the files that it came from: path, time of modification (ns) and size."""

    table: FlagTable
    files: tuple[tuple[str, int, int], ...]


def read(
    python: str,
    engine: str,
    *,
    ask: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
    cache: Path | None = None,
    own_rights: bool = False,
) -> Reading[FlagTable]:
    """The options of `engine` in this interpreter. `ask` are names of environment variables to look for in its table.

    `own_rights` is for whoever is going to run a server with it: another user's interpreter then is no reason not to ask.

    `variables` are set in addition to our own: an engine may have other options on another device. `cache` None is the
    user's cache directory. Importing an engine takes 5 to 30 s; a remembered answer takes milliseconds.
    """
    place = cache or config.directory("cache", os.environ, Path.home()) / "flags"
    file = place / f"{_key(absolute(python), engine, ask, variables or {})}.json"
    known = _recall(file)
    if known is not None:
        return Ok(value=known, at=time.time())
    arguments = [*(word for name in ask for word in ("--ask", name)), *DIALECTS[engine].module]
    answer = probe.run(
        "describe_flags", arguments, python=absolute(python), limit_s=LIMIT_S, variables=variables, own_rights=own_rights
    )
    if not isinstance(answer, Ok):
        return answer
    if not answer.value.get("ok"):
        return Failed(error=f"{engine} could not be asked for its options: {answer.value.get('error', 'no reason given')}")
    try:
        fresh = _converted(answer.value, engine)
    except msgspec.ValidationError as error:
        return Failed(error=f"the probe's answer about options is not as expected: {error}")
    _keep(file, fresh)
    return Ok(value=fresh.table, at=answer.at, took_s=answer.took_s)


def _converted(answer: dict[str, Any], engine: str) -> _Remembered:
    own = ("version", "flags", "prefixes", "underscores", "dotted", "variables", "recorder", "torch")
    table = msgspec.convert({"engine": engine, **{name: answer.get(name) for name in own}}, FlagTable)
    return _Remembered(table=table, files=msgspec.convert(answer.get("files", []), tuple[tuple[str, int, int], ...]))


def _key(python: str, engine: str, ask: tuple[str, ...], variables: Mapping[str, str]) -> str:
    """One file an interpreter and device: the engine's own variables may change what it offers."""
    own = {k: v for k, v in {**os.environ, **variables}.items() if k.startswith(_MARKS[engine])}
    told = msgspec.json.encode([python, engine, ask, sorted(own.items()), os.environ.get("PYTHONPATH", "")])
    return hashlib.sha256(told).hexdigest()[:24]


def _recall(file: Path) -> FlagTable | None:
    """What was remembered, if every file that it came from is still the same."""
    try:
        kept = decode_json(bounded(file, _MAX_CACHE), _Remembered)
        for path, modified, size in kept.files:
            status = os.stat(path)
            if (status.st_mtime_ns, status.st_size) != (modified, size):
                return None
    except (OSError, msgspec.MsgspecError):
        return None
    return kept.table if kept.files else None


def _keep(file: Path, answer: _Remembered) -> None:
    """Remember an answer, and forget the oldest ones."""
    if not remember(file, msgspec.json.encode(answer)):
        return
    with contextlib.suppress(OSError):
        kept = sorted(file.parent.glob("*.json"), key=lambda one: one.stat().st_mtime, reverse=True)
        for old in kept[_MOST_FILES:]:
            old.unlink()
