"""TOML files of the user, read strictly: a key that nobody reads is an error with the nearest name, not a silent nothing."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from gpudiag.errors import UsageError

T = TypeVar("T")

_MAX_BYTES: Final = 1 << 20
_UNKNOWN: Final = re.compile(r"unknown field `(?P<name>[^`]*)`")
_PLACE: Final = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def directory(kind: str, variables: Mapping[str, str], home: Path) -> Path:
    """Our directory below one of the XDG base directories: kind is 'config', 'cache' or 'state'."""
    name, default = {
        "config": ("XDG_CONFIG_HOME", ".config"),
        "cache": ("XDG_CACHE_HOME", ".cache"),
        "state": ("XDG_STATE_HOME", ".local/state"),
    }[kind]
    base = variables.get(name, "")
    # The specification has relative paths ignored.
    return (Path(base) if os.path.isabs(base) else home / default) / "gpudiag"


def read_toml(path: Path, kind: type[T]) -> T:
    """A TOML file as a type. Raises UsageError that names the file, the place in it, and what it should be."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", help=f"ls -l {path}") from error
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{path} is larger than {_MAX_BYTES >> 20} MiB: no settings", help="name a TOML file")
    return parse_toml(data, kind, str(path))


def parse_toml(data: bytes, kind: type[T], name: str) -> T:
    """The same for the content of a file called `name`."""
    try:
        raw = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError alone: a number of thousands of digits
        raise UsageError(f"{name} is no TOML: {error}", help="https://toml.io has the grammar on one page") from error
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        message, help_ = _explained(str(error), kind)
        raise UsageError(f"{name}: {message}", help=help_) from error


def _explained(error: str, kind: type[Any]) -> tuple[str, str]:
    """The library's sentence in the user's terms, and the nearest name that exists."""
    place = _PLACE.search(error)
    where = f"[{place['path']}] " if place and place["path"] else ""
    unknown = _UNKNOWN.search(error)
    if unknown is None:
        said = _PLACE.sub("", error)
        return f"{where}{said[:1].lower()}{said[1:]}", "gpudiag launch --list-profiles shows profiles that are right"
    known = sorted(set(_fields(msgspec.json.schema(kind))))
    near = difflib.get_close_matches(unknown["name"], known, n=1)
    return f"{where}there is no setting {unknown['name']!r}", (
        f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    )


def _fields(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield from schema["properties"]
        for value in schema.values():
            yield from _fields(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _fields(value)
