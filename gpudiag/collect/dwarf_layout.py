"""The layout of a libnccl that gpudiag does not know, from its symbol table and debug information.

Runs as a program, in a child that is killed when it takes too long: parsing DWARF in Python is slow, and the file comes from
the target.

    python -m gpudiag.collect.dwarf_layout PARENT_PID TARGET_PID PATH

prints a `Layout` and the build-id as JSON. NCCL's wheels carry .symtab and DWARF 4 (seen in 2.28.9, 2.30.7, 2.32.3).
"""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from gpudiag.collect.elf_image import symbols
from gpudiag.collect.nccl_layout import FIELDS, OPTIONAL_FIELDS, SYMBOLS, Layout
from gpudiag.collect.parent_death import die_with
from gpudiag.collect.target_files import open_regular

_STRUCT: Final = b"ncclComm"
_MOST_UNITS: Final = 200
_VERSION: Final = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")
_VERSION_WINDOW: Final = 64


class Described(Struct, frozen=True, kw_only=True):
    """What the program prints."""

    build_id: str
    layout: Layout


def main() -> None:
    """Print the layout, or say on stderr why there is none."""
    die_with(int(sys.argv[1]))
    path = sys.argv[3]
    try:
        from elftools.common.exceptions import DWARFError, ELFError
    except ModuleNotFoundError:
        sys.exit("pyelftools is not installed")
    try:
        fd = open_regular(int(sys.argv[2]), path, (path.rsplit("/", 1)[-1],))
        described = describe(fd)
    except (ELFError, DWARFError, OSError, ValueError, KeyError, IndexError, RecursionError) as error:
        sys.exit(str(error) or type(error).__name__)
    sys.stdout.buffer.write(msgspec.json.encode(described))


def describe(fd: int) -> Described:
    """The layout of an open library. Raises ValueError if it is stripped or has another `struct ncclComm` than expected."""
    from elftools.elf.elffile import ELFFile

    found = symbols(fd, SYMBOLS)
    if missing := [name for name in SYMBOLS if name not in found]:
        raise ValueError(f"the library has no symbol {missing[0]}: NCCL before 2.24, or built without RAS")
    with open(fd, "rb", closefd=False) as file:
        elf = ELFFile(file)
        if not elf.has_dwarf_info():
            raise ValueError("the library has no debug information")
        note = elf.get_section_by_name(".note.gnu.build-id")
        if note is None:
            raise ValueError("the library has no build-id")
        identity, offsets = note.data()[16:].hex(), _offsets(elf.get_dwarf_info())
    return Described(build_id=identity, layout=Layout(symbols=found, offsets=offsets, version=_version(fd)))


def _offsets(dwarf: Any) -> dict[str, int]:
    for structure in _complete(dwarf):
        members = dict(_members(structure))
        if missing := [name for name in FIELDS if name not in members]:
            raise ValueError(f"struct ncclComm has no field {missing[0]}")
        return {name: members[name] for name in (*FIELDS, *OPTIONAL_FIELDS) if name in members}
    raise ValueError("the debug information does not describe struct ncclComm")


def _complete(dwarf: Any) -> Iterator[Any]:
    """Descriptions of `struct ncclComm` that are no mere declarations."""
    for number, unit in enumerate(dwarf.iter_CUs()):
        if number >= _MOST_UNITS:
            return
        for child in unit.get_top_DIE().iter_children():
            name = child.attributes.get("DW_AT_name")
            if name is not None and name.value == _STRUCT and "DW_AT_byte_size" in child.attributes:
                yield child


def _members(structure: Any) -> Iterator[tuple[str, int]]:
    for child in structure.iter_children():
        name, place = child.attributes.get("DW_AT_name"), child.attributes.get("DW_AT_data_member_location")
        if child.tag == "DW_TAG_member" and name is not None and place is not None:
            yield name.value.decode("ascii", "replace"), int(place.value)


def _version(fd: int) -> str | None:
    with mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ) as image:
        at = -1
        while (at := image.find(b"NCCL version ", at + 1)) >= 0:
            if match := _VERSION.match(image[at : at + _VERSION_WINDOW]):
                return match.group(1).decode()
    return None


if __name__ == "__main__":
    main()
