"""Python objects of another process: attributes, items, text and types, read from its memory while it runs.

The target is not stopped, so any address may be stale and any structure half changed, and a hostile target can write
what it likes. Every read is bounded and every structure checked (the type of a type is a type, counts are plausible,
sizes agree); what fails a check is None, never an exception and never an endless walk. Only a target that is gone, or
memory that was closed, is an OSError (see TargetMemory).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec, TypeVar

from gpudiag.collect import pylayout as at
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.pylayout import Layout
from gpudiag.collect.pystructs import MAX_ITEMS, MAX_NAME, MAX_TEXT, ImplausibleError, PyStructs, PyType, not_mapped, word

P = ParamSpec("P")
R = TypeVar("R")


def _none_if_implausible(
    method: Callable[Concatenate[PyObjects, P], R | None],
) -> Callable[Concatenate[PyObjects, P], R | None]:
    @functools.wraps(method)
    def guarded(self: PyObjects, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except ImplausibleError:
            return None
        except OSError as error:
            if not_mapped(error):
                return None
            raise

    return guarded


@dataclass(frozen=True, slots=True)
class PyFunction:
    """A Python function: addresses of its globals and builtins dicts, and the cells of its closure by variable name.

    `qualname`, `file` and first `line` (of its decorators, if any) are those of its code: `functools.wraps` leaves them.
    """

    globals: int
    builtins: int
    qualname: str
    file: str
    line: int
    closure: dict[str, int]


class PyObjects:
    """The objects of one process during one look: what was read once is remembered, so do not keep it for the next."""

    def __init__(self, memory: TargetMemory, layout: Layout) -> None:
        self.layout: Final = layout
        self._memory = memory
        self._structs = PyStructs(memory, layout)

    @_none_if_implausible
    def attribute(self, address: int, name: str) -> int | None:
        """Address of `object.name` as the generic attribute lookup finds it, without running any code of the target.

        None for anything that would run code (property, bound method) and for a name that is not there.
        """
        kind = self._structs.type_of(address)
        if kind.flags & at.FLAG_TYPE:
            return self._class_attribute(self._structs.type_at(address), name)
        found = self._in_mro(kind, name)
        if found is not None:
            descriptor = self._structs.type_of(found)
            if self._structs.name_of(descriptor) == "member_descriptor":
                return self._slot(address, kind, found)
            if descriptor.has_set:
                return None
        value = self._instance_attribute(address, kind, name)
        if value is not None:
            return value
        return self._plain(found)

    @_none_if_implausible
    def class_entries(self, address: int, name: str) -> tuple[int, ...] | None:
        """The raw entries `name` of the dicts along the MRO of the object's type: functions, properties, constants."""
        dicts = (self._structs.type_dict(self._structs.type_at(base)) for base in self._structs.type_of(address).mro)
        return tuple(entries[name] for entries in dicts if name in entries)

    @_none_if_implausible
    def class_values(self, address: int) -> tuple[int, ...] | None:
        """All raw entries of the dict of the object's own type."""
        return tuple(self._structs.type_dict(self._structs.type_of(address)).values())

    @_none_if_implausible
    def type_name(self, address: int) -> str | None:
        """'module.Name' of the object's type; built-in types have no module ('cell', 'dict')."""
        return self._structs.full_name(self._structs.type_of(address))

    @_none_if_implausible
    def type_names(self, address: int) -> tuple[str, ...] | None:
        """'module.Name' of the object's type and of its bases, in method resolution order."""
        return tuple(self._structs.full_name(self._structs.type_at(base)) for base in self._structs.type_of(address).mro)

    @_none_if_implausible
    def text(self, address: int, limit: int = MAX_TEXT) -> str | None:
        """The value of a str of at most `limit` characters."""
        return self._structs.text(address, min(limit, MAX_TEXT))

    @_none_if_implausible
    def integer(self, address: int) -> int | None:
        """The value of an int below 2**90."""
        return self._structs.integer(address)

    @_none_if_implausible
    def item(self, address: int, key: int | str) -> int | None:
        """Address of `object[key]` for a list or tuple and an index, or a dict and a str or int key."""
        if self._structs.type_of(address).flags & at.FLAG_DICT:
            return self._structs.dict_value(address, key)
        if isinstance(key, str):
            return None
        start, count = self._structs.sequence(address)
        position = key if key >= 0 else key + count
        return self._memory.pointer(start + 8 * position) if 0 <= position < count else None

    @_none_if_implausible
    def items(self, address: int, limit: int = MAX_ITEMS) -> tuple[int, ...] | None:
        """Addresses of the items of a list or tuple of at most `limit` items."""
        start, count = self._structs.sequence(address)
        return struct.unpack(f"<{count}Q", self._memory.read(start, 8 * count)) if count <= limit else None

    @_none_if_implausible
    def cell_value(self, address: int) -> int | None:
        """What a closure cell holds; the address itself for any other object."""
        if self._structs.name_of(self._structs.type_of(address)) != "cell":
            return address
        return self._memory.pointer(address + at.CELL_VALUE) or None

    @_none_if_implausible
    def module_dict(self, address: int) -> int | None:
        """The dict of a module object."""
        if not any(self._structs.name_of(self._structs.type_at(base)) == "module" for base in self._structs.type_of(address).mro):
            return None
        return self._memory.pointer(address + at.MODULE_DICT)

    @_none_if_implausible
    def function(self, address: int) -> PyFunction | None:
        """A Python function, or the one behind a bound method."""
        name = self._structs.name_of(self._structs.type_of(address))
        if name == "method":
            address = self._memory.pointer(address + at.METHOD_FUNCTION)
            name = self._structs.name_of(self._structs.type_of(address))
        if name != "function":
            return None
        data = self._memory.read(address, at.FUNCTION_READ)
        code = word(data, at.FUNCTION_CODE)
        return PyFunction(
            globals=word(data, at.FUNCTION_GLOBALS),
            builtins=word(data, at.FUNCTION_BUILTINS),
            qualname=self._structs.text(self._memory.pointer(code + at.CODE_QUALNAME), MAX_TEXT),
            file=self._structs.text(self._memory.pointer(code + at.CODE_FILENAME), MAX_TEXT),
            line=int.from_bytes(self._memory.read(code + self.layout.code_first_line, 4), "little"),
            closure=self._closure(code, word(data, at.FUNCTION_CLOSURE)),
        )

    @_none_if_implausible
    def find_keys(self, address: int, names: frozenset[str]) -> dict[str, int] | None:
        """Those entries of a dict whose key is one of `names`."""
        keys, values = self._structs.table(address)
        found = {}
        for index, (key, value) in enumerate(self._structs.entries(keys)):
            name = self._structs.key(key) if key else None
            if name in names and name is not None:
                found[name] = self._memory.pointer(values + 8 * index) if values else value
                if len(found) == len(names):
                    break
        return {name: value for name, value in found.items() if value}

    def _in_mro(self, kind: PyType, name: str) -> int | None:
        for base in kind.mro:
            found = self._structs.type_dict(self._structs.type_at(base)).get(name)
            if found is not None:
                return found
        return None

    def _class_attribute(self, kind: PyType, name: str) -> int | None:
        return self._plain(self._in_mro(kind, name))

    def _plain(self, found: int | None) -> int | None:
        """A class attribute that attribute lookup returns as it is."""
        return None if found is None or self._structs.type_of(found).has_get else found

    def _slot(self, address: int, kind: PyType, descriptor: int) -> int | None:
        definition = self._memory.pointer(descriptor + at.MEMBER_DEFINITION)
        member_type, _, offset = struct.unpack("<IIq", self._memory.read(definition + at.MEMBER_TYPE, 16))
        if member_type not in at.MEMBER_OBJECT_TYPES or offset % 8 or not 16 <= offset <= kind.basicsize - 8:
            return None
        return self._memory.pointer(address + offset) or None

    def _instance_attribute(self, address: int, kind: PyType, name: str) -> int | None:
        if not kind.flags & at.FLAG_MANAGED_DICT:
            if not 16 <= kind.dictoffset <= kind.basicsize - 8:
                return None
            own = self._memory.pointer(address + kind.dictoffset)
            return self._structs.dict_value(own, name) if own else None
        own, values = self._managed(address, kind)
        if values:
            index = self._structs.shared_keys(self._memory.pointer(kind.address + self.layout.type_cached_keys)).get(name)
            return None if index is None else self._memory.pointer(values + 8 * index) or None
        return self._structs.dict_value(own, name) if own else None

    def _managed(self, address: int, kind: PyType) -> tuple[int, int]:
        """Addresses of the dict and of the values array of an instance; 0 for the one that is not in use."""
        own = self._memory.pointer(address + at.MANAGED_DICT)
        if self.layout.values == "pointer":
            return own, self._memory.pointer(address + at.MANAGED_VALUES_311)
        if self.layout.values == "tagged-pointer":
            return (0, own + 1) if own & 1 else (own, 0)
        # PyDictValues of 3.13: capacity, size, embedded, valid (one byte each), then from byte 8 the values.
        inline = address + kind.basicsize
        valid = kind.flags & at.FLAG_INLINE_VALUES and self._memory.read(inline, 4)[3]
        return own, inline + 8 if valid else 0

    def _closure(self, code: int, closure: int) -> dict[str, int]:
        if not closure:
            return {}
        (count,) = struct.unpack("<i", self._memory.read(code + self.layout.code_free_variables, 4))
        names = self.items(self._memory.pointer(code + at.CODE_LOCALS_PLUS_NAMES), MAX_TEXT)
        cells = self.items(closure)
        if names is None or cells is None or not 0 < count <= len(names) or count != len(cells):
            raise ImplausibleError
        return {self._structs.text(name, MAX_NAME): cell for name, cell in zip(names[-count:], cells, strict=True)}
