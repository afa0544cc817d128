"""Plain data out of a pickle without ever running it.

torch writes flight-recorder dumps with its own C++ pickler: protocol 2, made of containers, numbers and strings only.
This reader knows just those opcodes and refuses the rest, so a dump can neither import nor call anything. What a pickle of
tensors wants to import and to call it can describe instead.
"""

from __future__ import annotations

import pickletools
from typing import Final, NamedTuple

MAX_BYTES: Final = 256 << 20
MAX_OPERATIONS: Final = 20_000_000
MAX_MEMO: Final = 4_000_000

_PUSHED: Final = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "FLOAT",
        "BINFLOAT",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
    ]
)
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_IGNORED: Final = frozenset({"PROTO", "FRAME"})
_MARK: Final = object()


class Named(NamedTuple):
    """A global that a pickle names; never looked up."""

    module: str
    name: str


class Call(NamedTuple):
    """A call that a pickle asks for; never made."""

    function: object
    arguments: object


class Outside(NamedTuple):
    """An object that lies outside the pickle, by its id: where a checkpoint of torch refers to the bytes of a tensor."""

    id: object


class NotPlainError(ValueError):
    """The pickle is truncated, too large, or wants to build something that is not plain data."""


def load_plain(data: bytes, *, describe: bool = False) -> object:
    """The value in `data`: dicts, lists, tuples, strings, bytes, numbers, booleans and None. Raises NotPlainError.

    With `describe`, globals, calls and outside objects become Named, Call and Outside; nothing is imported or called.
    """
    if len(data) > MAX_BYTES:
        raise NotPlainError("larger than 256 MiB")
    stack: list[object] = []
    memo: dict[int, object] = {}
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_OPERATIONS or len(memo) > MAX_MEMO:
                raise NotPlainError("too many operations")
            if opcode.name == "STOP":
                return stack.pop()
            if not (describe and _described(opcode.name, argument, stack)):
                _step(opcode.name, argument, stack, memo)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError) as error:
        raise NotPlainError(f"not a plain pickle: {error}") from None
    raise NotPlainError("ends early")


def _step(name: str, argument: object, stack: list[object], memo: dict[int, object]) -> None:
    if name in _PUSHED:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name == "MARK":
        stack.append(_MARK)
    elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
        memo[_index(argument)] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("GET", "BINGET", "LONG_BINGET"):
        stack.append(memo[_index(argument)])
    elif name not in _IGNORED:
        _container(name, stack)


def _described(name: str, argument: object, stack: list[object]) -> bool:
    """Whether this was an operation that builds something: it left a description of it."""
    if name == "GLOBAL":
        module, _, attribute = str(argument).partition(" ")
        stack.append(Named(module, attribute))
    elif name == "STACK_GLOBAL":
        named = stack[-2:]
        del stack[-2:]
        stack.append(Named(*map(str, named)))
    elif name in ("REDUCE", "NEWOBJ"):
        function, arguments = stack[-2:]
        del stack[-2:]
        # What torch calls for an empty dictionary is filled by the operations that follow.
        stack.append({} if function == Named("collections", "OrderedDict") else Call(function, arguments))
    elif name == "BINPERSID":
        stack.append(Outside(stack.pop()))
    elif name == "BUILD":
        stack.pop()
    else:
        return False
    return True


def _index(argument: object) -> int:
    if not isinstance(argument, int):
        raise NotPlainError("a memo index that is no number")
    return argument


def _container(name: str, stack: list[object]) -> None:
    if name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
        stack.append({} if name == "EMPTY_DICT" else [] if name == "EMPTY_LIST" else ())
    elif name in ("TUPLE", "LIST", "DICT"):
        items = _to_mark(stack)
        stack.append(
            tuple(items) if name == "TUPLE" else items if name == "LIST" else dict(zip(items[::2], items[1::2], strict=True))
        )
    elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        size = int(name[-1])
        items = stack[-size:]
        del stack[-size:]
        stack.append(tuple(items))
    elif name in ("APPEND", "APPENDS"):
        items = [stack.pop()] if name == "APPEND" else _to_mark(stack)
        target = stack[-1]
        if not isinstance(target, list):
            raise NotPlainError("appends to something that is no list")
        target.extend(items)
    elif name in ("SETITEM", "SETITEMS"):
        items = stack[-2:] if name == "SETITEM" else _to_mark(stack)
        if name == "SETITEM":
            del stack[-2:]
        holder = stack[-1]
        if not isinstance(holder, dict):
            raise NotPlainError("sets items of something that is no dict")
        holder.update(zip(items[::2], items[1::2], strict=True))
    elif name == "POP":
        stack.pop()
    else:
        raise NotPlainError(f"wants to run {name}")


def _to_mark(stack: list[object]) -> list[object]:
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise NotPlainError("no mark")
    items = stack[at + 1 :]
    del stack[at:]
    return items
