"""Words that redaction must leave alone, because recognition and rules read them.

A machine may be called `vllm` and a user `file`. Replacing such a name wherever it occurs would change thread roles, socket
families and paths of installed packages, and with them the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec.inspect as inspect

_COMMON = """
addr api app apps bin bool boot build cache caches cluster compute conda conf config container containers core cpu
cuda data default demo dev dist docker engine env envs etc eth export file files flash fs gpu head health home host
hosts http https ib ip job jobs json kernel kernels lib lib64 libs local localhost lock locks log logs main manager
master media mem mnt model models nccl net nfs node nodes opt package packages path pid pod port private proc process
public pypy python python3 rank ranks ray redacted root run sbin scheduler scratch script scripts secret serve server
service sglang shared shm site slurm socket spool src srv sys system tcp temp test tests thread threads tmp token
tokenizer torch torchrun tp transformers triton udp unix user users usr value var venv vllm volume work worker workers
workspace
"""

COMMON: Final = frozenset(_COMMON.split())
"""Names of top-level directories, programs and placeholders: too common to identify anybody."""

_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_PACKAGE_PATH: Final = re.compile(r"(?:site-packages|dist-packages|lib/python3\.\d+)/(.+)")


@lru_cache(maxsize=8)
def words_of_type(kind: type) -> frozenset[str]:
    """Field names, tags and literal values of a struct and of everything in it."""
    found: set[str] = set()
    _collect(inspect.type_info(kind), found, set())
    return frozenset(w.lower() for name in found for w in (name, *_WORD.findall(name)))


def _collect(info: inspect.Type, found: set[str], seen: set[Any]) -> None:
    if isinstance(info, inspect.LiteralType):
        found.update(v for v in info.values if isinstance(v, str))
    elif isinstance(info, inspect.UnionType):
        for member in info.types:
            _collect(member, found, seen)
    elif isinstance(info, inspect.VarTupleType | inspect.ListType):
        _collect(info.item_type, found, seen)
    elif isinstance(info, inspect.DictType):
        _collect(info.key_type, found, seen)
        _collect(info.value_type, found, seen)
    elif isinstance(info, inspect.StructType) and info.cls not in seen:
        seen.add(info.cls)
        found.update(str(v) for v in (info.tag, info.tag_field) if v is not None)
        for field in info.fields:
            found.add(field.encode_name)
            _collect(field.type, found, seen)


def words_of_code(frames: Collection[tuple[str, str]], flags: Iterable[str]) -> frozenset[str]:
    """What the target's code is made of. `frames` are (function, file) pairs.

    Of installed packages every part of a name counts, since the engines' tables look for it; of other code only whole names
    do: `alice_hook` in a script must not make `alice` a common word.
    """
    found = {function for function, _ in frames}
    for function, file in frames:
        if match := _PACKAGE_PATH.search(file):
            found.update(_WORD.findall(function))
            found.update(_WORD.findall(match[1]))
    for flag in flags:
        found.update(_WORD.findall(flag))
    return frozenset(word.lower() for word in found)
