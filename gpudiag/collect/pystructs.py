"""The structures that Python objects are made of, read from the memory of another process and checked.

Everything here raises ImplausibleError where memory does not hold what it should, and OSError where it cannot be read;
`pyobject` turns both into None. Every walk has an end, whatever the target wrote.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpudiag.collect import pylayout as at
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.pylayout import Layout

MAX_ENTRIES: Final = 1 << 16
"""Most entries of a dict that are looked at: the module table of a server has a few thousand."""

MAX_TEXT: Final = 4096
MAX_NAME: Final = 256
MAX_ITEMS: Final = 256
"""Most bases of a class, and most items of a sequence, that are looked at."""

_MAX_WORK: Final = 200_000
"""Objects and names that are looked at for one process in one look (a busy server needs some 10,000), then all fails."""
_MAX_TYPES: Final = 4096
_MAX_BASICSIZE: Final = 1 << 20
_KEY_READ: Final = 112


_NOT_MAPPED: Final = (errno.EIO, errno.EFAULT, errno.EINVAL)


class ImplausibleError(Exception):
    """Memory does not hold what it should."""


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


class PyStructs:
    """The structures of one process during one look: what was read once is remembered."""

    def __init__(self, memory: TargetMemory, layout: Layout) -> None:
        self._memory = memory
        self.layout: Final = layout
        self._types: dict[int, PyType] = {}
        self._metatypes: set[int] = set()
        self._names: dict[int, str] = {}
        self._type_dicts: dict[int, dict[str, int]] = {}
        self._known_shared: dict[int, dict[str, int]] = {}
        self._known_keys: dict[int, str | None] = {}
        self._work = 0

    def type_of(self, address: int) -> PyType:
        """The type of the object at an address."""
        self._count()
        count, kind = struct.unpack("<QQ", self._memory.read(address, 16))
        if self.layout.flags_in_refcount:
            count &= 0xFFFFFFFF
        # Immortal objects (3.12 on) have all low 32 bits set, or more; a freed one has a zero count or a heap pointer.
        if address % 8 or not 0 < count < 1 << 40:
            raise ImplausibleError
        return self.type_at(kind)

    def type_at(self, address: int) -> PyType:
        """The type object at an address, which has to be an instance of a metatype."""
        known = self._types.get(address)
        if known is not None:
            return known
        if address % 8 or len(self._types) >= _MAX_TYPES:
            raise ImplausibleError
        data = self._memory.read(address, at.TYPE_READ)
        self._check_metatype(word(data, at.TYPE), depth=0)
        flags, basicsize = word(data, at.TYPE_FLAGS), word(data, at.TYPE_BASICSIZE)
        if not 16 <= basicsize <= _MAX_BASICSIZE:
            raise ImplausibleError
        kind = PyType(
            address=address,
            flags=flags,
            basicsize=basicsize,
            dictoffset=struct.unpack_from("<q", data, at.TYPE_DICTOFFSET)[0],
            dict=word(data, at.TYPE_DICT),
            has_get=word(data, at.TYPE_DESCR_GET) != 0,
            has_set=word(data, at.TYPE_DESCR_SET) != 0,
            mro=self._mro(word(data, at.TYPE_MRO)) or (address,),
        )
        self._types[address] = kind
        return kind

    def name_of(self, kind: PyType) -> str:
        """tp_name: 'Name' for classes made in Python, usually 'module.Name' for those made in C."""
        name = self._names.get(kind.address)
        if name is None:
            name = self._c_string(self._memory.pointer(kind.address + at.TYPE_NAME))
            self._names[kind.address] = name
        return name

    def full_name(self, kind: PyType) -> str:
        """'module.Name', or 'Name' for a built-in type."""
        name = self.name_of(kind)
        if "." in name or not kind.flags & at.FLAG_HEAP_TYPE:
            return name
        module = self.type_dict(kind).get("__module__")
        return f"{self.text(module, MAX_NAME)}.{name}" if module else name

    def type_dict(self, kind: PyType) -> dict[str, int]:
        known = self._type_dicts.get(kind.address)
        if known is None:
            known = self._dict_items(kind.dict) if kind.dict else {}
            self._type_dicts[kind.address] = known
        return known

    def shared_keys(self, keys: int) -> dict[str, int]:
        """Index of each attribute name in the values of instances that share a key table."""
        known = self._known_shared.get(keys)
        if known is None:
            known = {name: i for i, (key, _) in enumerate(self.entries(keys)) if key and (name := self.key(key))}
            self._known_shared[keys] = known
        return known

    def table(self, address: int) -> tuple[int, int]:
        """Addresses of the key table of a dict and of the values array of a split one (0 if combined)."""
        if not self.type_of(address).flags & at.FLAG_DICT:
            raise ImplausibleError
        keys, values = struct.unpack("<QQ", self._memory.read(address + at.DICT_KEYS, 16))
        return keys, values + 8 if values and self.layout.values == "inline" else values

    def entries(self, keys: int) -> Iterator[tuple[int, int]]:
        """(key, value) addresses in insertion order; a deleted entry has key 0, one of a split table value 0."""
        log2_size, log2_index_bytes, kind, count = struct.unpack("<8xBBB5x8xQ", self._memory.read(keys, at.KEYS_INDICES))
        if not count:
            return iter(())
        index_width = 0 if log2_size < 8 else 1 if log2_size < 16 else 2
        if log2_size > 24 or log2_index_bytes != log2_size + index_width or count > min(1 << log2_size, MAX_ENTRIES) or kind > 2:
            raise ImplausibleError
        start = keys + at.KEYS_INDICES + (1 << log2_index_bytes)
        if kind == at.KEYS_GENERAL:
            return struct.iter_unpack("<8xQQ", self._read_long(start, 24 * count))
        return struct.iter_unpack("<QQ", self._read_long(start, 16 * count))

    def dict_value(self, address: int, wanted: int | str) -> int | None:
        keys, values = self.table(address)
        for index, (key, value) in enumerate(self.entries(keys)):
            if key and (self.key(key) if isinstance(wanted, str) else self._number(key)) == wanted:
                return (self._memory.pointer(values + 8 * index) if values else value) or None
        return None

    def text(self, address: int, limit: int) -> str:
        self._count()
        # Nearly all names fit one read; the rest of it is of no use where the string is the last object of its mapping.
        try:
            data = self._memory.read(address, _KEY_READ)
        except OSError:
            data = self._memory.read(address, at.STR_STATE + 8)
        if address % 8 or not self.type_at(word(data, at.TYPE)).flags & at.FLAG_STR:
            raise ImplausibleError
        length = word(data, at.SIZE)
        state = data[at.STR_STATE]
        width, compact, ascii_only = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        if length > limit or width not in (1, 2, 4):
            raise ImplausibleError
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
            raise ImplausibleError from None

    def key(self, address: int) -> str | None:
        """A dict key as text; None if it is no str, is too long for a name or cannot be read."""
        if address not in self._known_keys:
            try:
                self._known_keys[address] = self.text(address, MAX_NAME)
            except (ImplausibleError, OSError) as error:
                _raise_if_gone(error)
                self._known_keys[address] = None
        return self._known_keys[address]

    def integer(self, address: int) -> int:
        """The value of an int below 2**90."""
        if not self.type_of(address).flags & at.FLAG_INT:
            raise ImplausibleError
        size = int.from_bytes(self._memory.read(address + at.SIZE, 8), "little", signed=True)
        if self.layout.tagged_int:
            count, negative = size >> 3, size & 3 == 2
        else:
            count, negative = abs(size), size < 0
        if not 0 <= count <= 3:
            raise ImplausibleError
        digits: tuple[int, ...] = struct.unpack(f"<{count}I", self._memory.read(address + at.INT_DIGITS, 4 * count))
        if any(digit >> 30 for digit in digits):
            raise ImplausibleError
        value = sum(digit << 30 * i for i, digit in enumerate(digits))
        return -value if negative else value

    def sequence(self, address: int) -> tuple[int, int]:
        """Address of the first item of a list or tuple and how many there are."""
        flags = self.type_of(address).flags
        count = self._memory.pointer(address + at.SIZE)
        if count > 1 << 32:
            raise ImplausibleError
        if flags & at.FLAG_LIST:
            return self._memory.pointer(address + at.LIST_ITEMS), count
        if flags & at.FLAG_TUPLE:
            return address + self.layout.tuple_items, count
        raise ImplausibleError

    def _count(self) -> None:
        self._work += 1
        if self._work > _MAX_WORK:
            raise ImplausibleError

    def _check_metatype(self, address: int, depth: int) -> None:
        if address in self._metatypes:
            return
        if depth > 4 or address % 8:
            raise ImplausibleError
        data = self._memory.read(address, at.TYPE_READ)
        if not word(data, at.TYPE_FLAGS) & at.FLAG_TYPE:
            raise ImplausibleError
        above = word(data, at.TYPE)
        if above != address:
            self._check_metatype(above, depth + 1)
        self._metatypes.add(address)

    def _mro(self, address: int) -> tuple[int, ...]:
        """The types of an MRO. Its own type is not checked: that would lead back here."""
        if not address:
            return ()
        count = self._memory.pointer(address + at.SIZE)
        if not 0 < count <= MAX_ITEMS:
            raise ImplausibleError
        return struct.unpack(f"<{count}Q", self._memory.read(address + self.layout.tuple_items, 8 * count))

    def _c_string(self, address: int) -> str:
        data = b""
        while b"\0" not in data:
            if len(data) > MAX_NAME:
                raise ImplausibleError
            # Up to the end of a 64-byte line at a time: the page after the string may not be mapped.
            start = address + len(data)
            data += self._memory.read(start, 64 - start % 64)
        return data[: data.index(b"\0")].decode("utf-8", "replace")

    def _number(self, address: int) -> int | None:
        try:
            return self.integer(address)
        except (ImplausibleError, OSError) as error:
            _raise_if_gone(error)
            return None

    def _dict_items(self, address: int) -> dict[str, int]:
        keys, values = self.table(address)
        if values:
            raise ImplausibleError
        return {name: value for key, value in self.entries(keys) if key and value and (name := self.key(key))}

    def _read_long(self, address: int, size: int) -> bytes:
        step = 1 << 19
        return b"".join(self._memory.read(address + done, min(step, size - done)) for done in range(0, size, step))


def _raise_if_gone(error: Exception) -> None:
    if isinstance(error, OSError) and not not_mapped(error):
        raise error


def word(data: bytes, offset: int) -> int:
    """The 64-bit little-endian word at an offset."""
    return int.from_bytes(data[offset : offset + 8], "little")
