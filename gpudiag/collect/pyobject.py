"""Python objects of another process: attributes, items, text and types, read from its memory while it runs.

The target is not stopped, so any address may be stale and any structure half changed, and a hostile target can write
what it likes. Every read is bounded and every structure checked (the type of a type is a type, counts are plausible,
sizes agree); what fails a check is None, never an exception and never an endless walk. Only a target that is gone, or
memory that was closed, is an OSError (see TargetMemory).
"""

from __future__ import annotations

import errno
import functools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec, TypeVar

from gpudiag.collect import pylayout as at
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.pylayout import Layout

MAX_ENTRIES: Final = 1 << 16
"""Most entries of a dict that are looked at: the module table of a server has a few thousand."""

MAX_TEXT: Final = 4096
_MAX_MRO: Final = 256
_MAX_WORK: Final = 200_000
"""Objects and names that are looked at for one process in one look (a busy server needs some 10,000), then all is None."""
_MAX_NAME: Final = 256
_MAX_TYPES: Final = 4096
_MAX_BASICSIZE: Final = 1 << 20
_KEY_READ: Final = 112
_NOT_MAPPED: Final = (errno.EIO, errno.EFAULT, errno.EINVAL)

P = ParamSpec("P")
R = TypeVar("R")


class _ImplausibleError(Exception):
    """Memory does not hold what it should; never leaves this module."""


def _none_if_implausible(
    method: Callable[Concatenate[PyObjects, P], R | None],
) -> Callable[Concatenate[PyObjects, P], R | None]:
    @functools.wraps(method)
    def guarded(self: PyObjects, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except _ImplausibleError:
            return None
        except OSError as error:
            if not_mapped(error):
                return None
            raise

    return guarded


def not_mapped(error: OSError) -> bool:
    """Whether a read failed because the address is nonsense, and not because the target or the memory file is gone."""
    return error.errno in _NOT_MAPPED


@dataclass(frozen=True, slots=True)
class PyType:
    """A type object. `dict` is 0 for built-in types from 3.12 on, which keep theirs in the interpreter."""

    address: int
    flags: int
    basicsize: int
    dictoffset: int
    dict: int
    has_get: bool
    has_set: bool
    mro: tuple[int, ...]


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
        self._memory = memory
        self.layout: Final = layout
        self._types: dict[int, PyType] = {}
        self._metatypes: set[int] = set()
        self._names: dict[int, str] = {}
        self._type_dicts: dict[int, dict[str, int]] = {}
        self._shared_keys: dict[int, dict[str, int]] = {}
        self._keys: dict[int, str | None] = {}
        self._work = 0

    @_none_if_implausible
    def attribute(self, address: int, name: str) -> int | None:
        """Address of `object.name` as the generic attribute lookup finds it, without running any code of the target.

        None for anything that would run code (property, bound method) and for a name that is not there.
        """
        kind = self._type_of(address)
        if kind.flags & at.FLAG_TYPE:
            return self._class_attribute(self._type(address), name)
        found = self._in_mro(kind, name)
        if found is not None:
            descriptor = self._type_of(found)
            if self._name_of(descriptor) == "member_descriptor":
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
        dicts = (self._type_dict(self._type(base)) for base in self._type_of(address).mro)
        return tuple(entries[name] for entries in dicts if name in entries)

    @_none_if_implausible
    def class_values(self, address: int) -> tuple[int, ...] | None:
        """All raw entries of the dict of the object's own type."""
        return tuple(self._type_dict(self._type_of(address)).values())

    @_none_if_implausible
    def type_name(self, address: int) -> str | None:
        """'module.Name' of the object's type; built-in types have no module ('cell', 'dict')."""
        return self._full_name(self._type_of(address))

    @_none_if_implausible
    def type_names(self, address: int) -> tuple[str, ...] | None:
        """'module.Name' of the object's type and of its bases, in method resolution order."""
        return tuple(self._full_name(self._type(base)) for base in self._type_of(address).mro)

    @_none_if_implausible
    def text(self, address: int, limit: int = MAX_TEXT) -> str | None:
        """The value of a str of at most `limit` characters."""
        return self._text(address, min(limit, MAX_TEXT))

    @_none_if_implausible
    def integer(self, address: int) -> int | None:
        """The value of an int below 2**90."""
        if not self._type_of(address).flags & at.FLAG_INT:
            return None
        size = int.from_bytes(self._memory.read(address + at.SIZE, 8), "little", signed=True)
        if self.layout.tagged_int:
            count, negative = size >> 3, size & 3 == 2
        else:
            count, negative = abs(size), size < 0
        if not 0 <= count <= 3:
            return None
        digits: tuple[int, ...] = struct.unpack(f"<{count}I", self._memory.read(address + at.INT_DIGITS, 4 * count))
        if any(digit >> 30 for digit in digits):
            return None
        value = sum(digit << 30 * i for i, digit in enumerate(digits))
        return -value if negative else value

    @_none_if_implausible
    def item(self, address: int, key: int | str) -> int | None:
        """Address of `object[key]` for a list or tuple and an index, or a dict and a str or int key."""
        if self._type_of(address).flags & at.FLAG_DICT:
            return self._dict_value(address, key)
        if isinstance(key, str):
            return None
        start, count = self._sequence(address)
        position = key if key >= 0 else key + count
        return self._memory.pointer(start + 8 * position) if 0 <= position < count else None

    @_none_if_implausible
    def items(self, address: int, limit: int = _MAX_MRO) -> tuple[int, ...] | None:
        """Addresses of the items of a list or tuple of at most `limit` items."""
        start, count = self._sequence(address)
        return struct.unpack(f"<{count}Q", self._memory.read(start, 8 * count)) if count <= limit else None

    @_none_if_implausible
    def cell_value(self, address: int) -> int | None:
        """What a closure cell holds; the address itself for any other object."""
        if self._name_of(self._type_of(address)) != "cell":
            return address
        return self._memory.pointer(address + at.CELL_VALUE) or None

    @_none_if_implausible
    def module_dict(self, address: int) -> int | None:
        """The dict of a module object."""
        if not any(self._name_of(self._type(base)) == "module" for base in self._type_of(address).mro):
            return None
        return self._memory.pointer(address + at.MODULE_DICT)

    @_none_if_implausible
    def function(self, address: int) -> PyFunction | None:
        """A Python function, or the one behind a bound method."""
        name = self._name_of(self._type_of(address))
        if name == "method":
            address = self._memory.pointer(address + at.METHOD_FUNCTION)
            name = self._name_of(self._type_of(address))
        if name != "function":
            return None
        data = self._memory.read(address, at.FUNCTION_READ)
        code = _word(data, at.FUNCTION_CODE)
        return PyFunction(
            globals=_word(data, at.FUNCTION_GLOBALS),
            builtins=_word(data, at.FUNCTION_BUILTINS),
            qualname=self._text(self._memory.pointer(code + at.CODE_QUALNAME), MAX_TEXT),
            file=self._text(self._memory.pointer(code + at.CODE_FILENAME), MAX_TEXT),
            line=int.from_bytes(self._memory.read(code + self.layout.code_first_line, 4), "little"),
            closure=self._closure(code, _word(data, at.FUNCTION_CLOSURE)),
        )

    @_none_if_implausible
    def find_keys(self, address: int, names: frozenset[str]) -> dict[str, int] | None:
        """Those entries of a dict whose key is one of `names`."""
        keys, values = self._table(address)
        found = {}
        for index, (key, value) in enumerate(self._entries(keys)):
            name = self._key(key) if key else None
            if name in names and name is not None:
                found[name] = self._memory.pointer(values + 8 * index) if values else value
                if len(found) == len(names):
                    break
        return {name: value for name, value in found.items() if value}

    def _count(self) -> None:
        self._work += 1
        if self._work > _MAX_WORK:
            raise _ImplausibleError

    def _type_of(self, address: int) -> PyType:
        self._count()
        count, kind = struct.unpack("<QQ", self._memory.read(address, 16))
        if self.layout.flags_in_refcount:
            count &= 0xFFFFFFFF
        # Immortal objects (3.12 on) have all low 32 bits set, or more; a freed one has a zero count or a heap pointer.
        if address % 8 or not 0 < count < 1 << 40:
            raise _ImplausibleError
        return self._type(kind)

    def _type(self, address: int) -> PyType:
        known = self._types.get(address)
        if known is not None:
            return known
        if address % 8 or len(self._types) >= _MAX_TYPES:
            raise _ImplausibleError
        data = self._memory.read(address, at.TYPE_READ)
        self._check_metatype(_word(data, at.TYPE), depth=0)
        flags, basicsize = _word(data, at.TYPE_FLAGS), _word(data, at.TYPE_BASICSIZE)
        if not 16 <= basicsize <= _MAX_BASICSIZE:
            raise _ImplausibleError
        kind = PyType(
            address=address,
            flags=flags,
            basicsize=basicsize,
            dictoffset=struct.unpack_from("<q", data, at.TYPE_DICTOFFSET)[0],
            dict=_word(data, at.TYPE_DICT),
            has_get=_word(data, at.TYPE_DESCR_GET) != 0,
            has_set=_word(data, at.TYPE_DESCR_SET) != 0,
            mro=self._mro(_word(data, at.TYPE_MRO)) or (address,),
        )
        self._types[address] = kind
        return kind

    def _check_metatype(self, address: int, depth: int) -> None:
        if address in self._metatypes:
            return
        if depth > 4 or address % 8:
            raise _ImplausibleError
        data = self._memory.read(address, at.TYPE_READ)
        if not _word(data, at.TYPE_FLAGS) & at.FLAG_TYPE:
            raise _ImplausibleError
        above = _word(data, at.TYPE)
        if above != address:
            self._check_metatype(above, depth + 1)
        self._metatypes.add(address)

    def _mro(self, address: int) -> tuple[int, ...]:
        """The types of an MRO. Its own type is not checked: that would lead back here."""
        if not address:
            return ()
        count = self._memory.pointer(address + at.SIZE)
        if not 0 < count <= _MAX_MRO:
            raise _ImplausibleError
        return struct.unpack(f"<{count}Q", self._memory.read(address + self.layout.tuple_items, 8 * count))

    def _name_of(self, kind: PyType) -> str:
        """tp_name: 'Name' for classes made in Python, usually 'module.Name' for those made in C."""
        name = self._names.get(kind.address)
        if name is None:
            name = self._c_string(self._memory.pointer(kind.address + at.TYPE_NAME))
            self._names[kind.address] = name
        return name

    def _full_name(self, kind: PyType) -> str:
        name = self._name_of(kind)
        if "." in name or not kind.flags & at.FLAG_HEAP_TYPE:
            return name
        module = self._type_dict(kind).get("__module__")
        return f"{self._text(module, _MAX_NAME)}.{name}" if module else name

    def _c_string(self, address: int) -> str:
        data = b""
        while b"\0" not in data:
            if len(data) > _MAX_NAME:
                raise _ImplausibleError
            # Up to the end of a 64-byte line at a time: the page after the string may not be mapped.
            start = address + len(data)
            data += self._memory.read(start, 64 - start % 64)
        return data[: data.index(b"\0")].decode("utf-8", "replace")

    def _in_mro(self, kind: PyType, name: str) -> int | None:
        for base in kind.mro:
            found = self._type_dict(self._type(base)).get(name)
            if found is not None:
                return found
        return None

    def _type_dict(self, kind: PyType) -> dict[str, int]:
        known = self._type_dicts.get(kind.address)
        if known is None:
            known = self._dict_items(kind.dict) if kind.dict else {}
            self._type_dicts[kind.address] = known
        return known

    def _class_attribute(self, kind: PyType, name: str) -> int | None:
        return self._plain(self._in_mro(kind, name))

    def _plain(self, found: int | None) -> int | None:
        """A class attribute that attribute lookup returns as it is."""
        return None if found is None or self._type_of(found).has_get else found

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
            return self._dict_value(own, name) if own else None
        own, values = self._managed(address, kind)
        if values:
            index = self._shared(self._memory.pointer(kind.address + self.layout.type_cached_keys)).get(name)
            return None if index is None else self._memory.pointer(values + 8 * index) or None
        return self._dict_value(own, name) if own else None

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

    def _shared(self, keys: int) -> dict[str, int]:
        known = self._shared_keys.get(keys)
        if known is None:
            known = {name: i for i, (key, _) in enumerate(self._entries(keys)) if key and (name := self._key(key))}
            self._shared_keys[keys] = known
        return known

    def _table(self, address: int) -> tuple[int, int]:
        """Addresses of the key table of a dict and of the values array of a split one (0 if combined)."""
        if not self._type_of(address).flags & at.FLAG_DICT:
            raise _ImplausibleError
        keys, values = struct.unpack("<QQ", self._memory.read(address + at.DICT_KEYS, 16))
        return keys, values + 8 if values and self.layout.values == "inline" else values

    def _dict_value(self, address: int, wanted: int | str) -> int | None:
        keys, values = self._table(address)
        for index, (key, value) in enumerate(self._entries(keys)):
            if key and (self._key(key) if isinstance(wanted, str) else self.integer(key)) == wanted:
                return (self._memory.pointer(values + 8 * index) if values else value) or None
        return None

    def _dict_items(self, address: int) -> dict[str, int]:
        keys, values = self._table(address)
        if values:
            raise _ImplausibleError
        return {name: value for key, value in self._entries(keys) if key and value and (name := self._key(key))}

    def _entries(self, keys: int) -> Iterator[tuple[int, int]]:
        """(key, value) addresses in insertion order; a deleted entry has key 0, one of a split table value 0."""
        log2_size, log2_index_bytes, kind, count = struct.unpack("<8xBBB5x8xQ", self._memory.read(keys, at.KEYS_INDICES))
        if not count:
            return iter(())
        index_width = 0 if log2_size < 8 else 1 if log2_size < 16 else 2
        if log2_size > 24 or log2_index_bytes != log2_size + index_width or count > min(1 << log2_size, MAX_ENTRIES) or kind > 2:
            raise _ImplausibleError
        start = keys + at.KEYS_INDICES + (1 << log2_index_bytes)
        if kind == at.KEYS_GENERAL:
            return struct.iter_unpack("<8xQQ", self._read_long(start, 24 * count))
        return struct.iter_unpack("<QQ", self._read_long(start, 16 * count))

    def _read_long(self, address: int, size: int) -> bytes:
        step = 1 << 19
        return b"".join(self._memory.read(address + done, min(step, size - done)) for done in range(0, size, step))

    def _key(self, address: int) -> str | None:
        """A dict key as text; None if it is no str, is too long for a name or cannot be read."""
        if address not in self._keys:
            self._keys[address] = self.text(address, _MAX_NAME)
        return self._keys[address]

    def _text(self, address: int, limit: int) -> str:
        self._count()
        # Nearly all names fit one read; the rest of it is of no use where the string is the last object of its mapping.
        try:
            data = self._memory.read(address, _KEY_READ)
        except OSError:
            data = self._memory.read(address, at.STR_STATE + 8)
        if address % 8 or not self._type(_word(data, at.TYPE)).flags & at.FLAG_STR:
            raise _ImplausibleError
        length = _word(data, at.SIZE)
        state = data[at.STR_STATE]
        width, compact, ascii_only = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        if length > limit or width not in (1, 2, 4):
            raise _ImplausibleError
        start = self.layout.str_ascii if compact and ascii_only else self.layout.str_compact
        if not compact:
            raw = self._memory.read(self._memory.pointer(address + start), length * width)
        elif start + length * width <= len(data):
            raw = data[start : start + length * width]
        else:
            raw = self._memory.read(address + start, length * width)
        try:
            return raw.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width], "surrogatepass")
        except UnicodeDecodeError:
            raise _ImplausibleError from None

    def _sequence(self, address: int) -> tuple[int, int]:
        """Address of the first item of a list or tuple and how many there are."""
        flags = self._type_of(address).flags
        count = self._memory.pointer(address + at.SIZE)
        if count > 1 << 32:
            raise _ImplausibleError
        if flags & at.FLAG_LIST:
            return self._memory.pointer(address + at.LIST_ITEMS), count
        if flags & at.FLAG_TUPLE:
            return address + self.layout.tuple_items, count
        raise _ImplausibleError

    def _closure(self, code: int, closure: int) -> dict[str, int]:
        if not closure:
            return {}
        (count,) = struct.unpack("<i", self._memory.read(code + self.layout.code_free_variables, 4))
        names = self.items(self._memory.pointer(code + at.CODE_LOCALS_PLUS_NAMES), MAX_TEXT)
        cells = self.items(closure)
        if names is None or cells is None or not 0 < count <= len(names) or count != len(cells):
            raise _ImplausibleError
        return {self._text(name, _MAX_NAME): cell for name, cell in zip(names[-count:], cells, strict=True)}


def _word(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")
