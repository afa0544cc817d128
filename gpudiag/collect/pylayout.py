"""Where CPython keeps things: structure offsets in bytes, for 64-bit little-endian builds with a GIL.

Every offset was computed with offsetof() from the headers that CPython 3.11.7, 3.12.1, 3.13.0 and 3.14.10 install
(Include/cpython/object.h, dictobject.h, unicodeobject.h, funcobject.h, code.h, listobject.h, Include/descrobject.h,
Include/internal/pycore_dict.h and pycore_moduleobject.h); the tests read live objects of each interpreter with them.
Within a minor version these structures do not change. Other versions are refused rather than guessed at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

REFCOUNT: Final = 0
TYPE: Final = 8
SIZE: Final = 16
"""ob_size of list and tuple, length of str, ob_size (3.11) or lv_tag (3.12 on) of int."""

TYPE_NAME: Final = 24
TYPE_BASICSIZE: Final = 32
TYPE_FLAGS: Final = 168
TYPE_DICT: Final = 264
TYPE_DESCR_GET: Final = 272
TYPE_DESCR_SET: Final = 280
TYPE_DICTOFFSET: Final = 288
TYPE_MRO: Final = 344
TYPE_READ: Final = 352
"""Bytes of a type object that hold all of the fields above."""

FLAG_INLINE_VALUES: Final = 1 << 2
FLAG_MANAGED_DICT: Final = 1 << 4
FLAG_HEAP_TYPE: Final = 1 << 9
FLAG_INT: Final = 1 << 24
FLAG_LIST: Final = 1 << 25
FLAG_TUPLE: Final = 1 << 26
FLAG_STR: Final = 1 << 28
FLAG_DICT: Final = 1 << 29
FLAG_TYPE: Final = 1 << 31
"""tp_flags, Include/object.h. FLAG_INLINE_VALUES has another meaning before 3.13."""

DICT_KEYS: Final = 32
DICT_VALUES: Final = 40
KEYS_INDICES: Final = 32
KEYS_GENERAL: Final = 0
"""dk_kind of a table whose entries carry their hash (24 bytes each); the other kinds have 16-byte entries."""

STR_STATE: Final = 32
INT_DIGITS: Final = 24
LIST_ITEMS: Final = 24
CELL_VALUE: Final = 16
MODULE_DICT: Final = 16
METHOD_FUNCTION: Final = 16

FUNCTION_GLOBALS: Final = 16
FUNCTION_BUILTINS: Final = 24
FUNCTION_CODE: Final = 48
FUNCTION_CLOSURE: Final = 72
FUNCTION_READ: Final = 80

CODE_LOCALS_PLUS_NAMES: Final = 96
CODE_FILENAME: Final = 112
CODE_QUALNAME: Final = 128

MEMBER_DEFINITION: Final = 40
"""PyMemberDescrObject.d_member, a pointer to a PyMemberDef {name, int type, offset, int flags, doc}."""
MEMBER_TYPE: Final = 8
MEMBER_OFFSET: Final = 16
MEMBER_OBJECT_TYPES: Final = (6, 16)
"""T_OBJECT and T_OBJECT_EX, Include/structmember.h."""

MANAGED_DICT: Final = -24
"""From the object: its dict (3.11, 3.13), its dict or, with the lowest bit set, its values + 1 (3.12)."""
MANAGED_VALUES_311: Final = -32


@dataclass(frozen=True, slots=True)
class Layout:
    """What differs between the versions. `values` says where an instance without a dict keeps its attributes."""

    version: tuple[int, int]
    values: Literal["pointer", "tagged-pointer", "inline"]
    type_cached_keys: int
    """PyHeapTypeObject.ht_cached_keys: the attribute names that instances of the type share."""
    str_ascii: int
    """sizeof(PyASCIIObject): where the characters of a compact ASCII string start."""
    str_compact: int
    """sizeof(PyCompactUnicodeObject): the same for other compact strings; a pointer to them where not compact."""
    code_free_variables: int
    """PyCodeObject.co_nfreevars."""
    code_first_line: int
    """PyCodeObject.co_firstlineno."""
    tagged_int: bool
    """Whether an int holds lv_tag (digit count << 3 | sign) in place of a signed digit count."""
    tuple_items: int = 24
    """PyTupleObject.ob_item; from 3.14 on the hash of a tuple is kept before it."""
    flags_in_refcount: bool = False
    """Whether the upper half of the reference count holds flags (Include/refcount.h, 3.14)."""
    mutex_locks: bool = False
    """Whether locks are a PyMutex inside the object and not a pointer to a semaphore (Modules/_threadmodule.c, 3.14)."""


_LAYOUTS: Final = {
    layout.version: layout
    for layout in (
        Layout((3, 11), "pointer", 872, 48, 72, 92, 72, tagged_int=False),
        Layout((3, 12), "tagged-pointer", 880, 40, 56, 88, 68, tagged_int=True),
        Layout((3, 13), "inline", 880, 40, 56, 88, 68, tagged_int=True),
        Layout((3, 14), "inline", 880, 40, 56, 88, 68, tagged_int=True, tuple_items=32, flags_in_refcount=True, mutex_locks=True),
    )
}


def layout_of(version: tuple[int, int]) -> Layout | None:
    """The layout of a CPython version, or None if gpudiag does not know it."""
    return _LAYOUTS.get(version)


def parse_version(text: str | None) -> tuple[int, int] | None:
    """(3, 12) from '3.12.1'; None if the text is no version."""
    parts = (text or "").split(".")
    if len(parts) >= 2 and parts[0].isdecimal() and parts[1].isdecimal() and len(text or "") < 40:
        return int(parts[0]), int(parts[1])
    return None
