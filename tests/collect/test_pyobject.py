"""PyObjects against live objects of every interpreter at hand, and against memory that is no object at all."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudiag.collect import pystructs
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.pylayout import layout_of, parse_version
from gpudiag.collect.pyobject import PyObjects
from tests.collect.targets import INTERPRETERS, Target, running


@pytest.fixture(scope="module", params=sorted(INTERPRETERS))
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with running(request.param, "objects.py") as started:
        yield started


@pytest.fixture
def objects(target: Target) -> Iterator[PyObjects]:
    layout = layout_of(target.version)
    assert layout is not None
    with TargetMemory(target.pid) as memory:
        yield PyObjects(memory, layout)


def own_objects() -> PyObjects:
    layout = layout_of(sys.version_info[:2])
    assert layout is not None
    return PyObjects(TargetMemory(os.getpid()), layout)


def test_attributes_are_found_where_the_interpreter_keeps_them(target: Target, objects: PyObjects) -> None:
    found = {name: objects.attribute(address, attribute) for name, address, attribute, _ in target.said["attributes"]}
    assert found == {name: value for name, _, _, value in target.said["attributes"]}


def test_items_are_found_by_constant_key(target: Target, objects: PyObjects) -> None:
    found = {name: objects.item(address, key) for name, address, key, _ in target.said["items"]}
    assert found == {name: value for name, _, _, value in target.said["items"]}


def test_texts_of_every_width_are_read(target: Target, objects: PyObjects) -> None:
    assert [objects.text(address) for address, _ in target.said["texts"]] == [text for _, text in target.said["texts"]]


def test_a_text_above_the_limit_is_none(target: Target, objects: PyObjects) -> None:
    address, text = max(target.said["texts"], key=lambda pair: len(pair[1]))
    assert objects.text(address, len(text)) == text
    assert objects.text(address, len(text) - 1) is None


def test_integers_are_read(target: Target, objects: PyObjects) -> None:
    assert [objects.integer(address) for address, _ in target.said["numbers"]] == [n for _, n in target.said["numbers"]]


def test_types_are_named_with_their_module(target: Target, objects: PyObjects) -> None:
    for address, names in target.said["types"]:
        assert objects.type_names(address) == tuple(names)
        assert objects.type_name(address) == names[0]


def test_a_function_gives_its_globals_and_closure(target: Target, objects: PyObjects) -> None:
    address, globals_, qualname, file, variable, cell, value = target.said["function"]
    function = objects.function(address)
    assert function is not None
    assert (function.globals, function.qualname, function.file) == (globals_, qualname, file)
    assert function.closure == {variable: cell}
    assert objects.cell_value(cell) == value


def test_a_bound_method_gives_its_function(target: Target, objects: PyObjects) -> None:
    address, qualname = target.said["method"]
    function = objects.function(address)
    assert function is not None
    assert function.qualname == qualname


def test_globals_are_found_through_the_table_of_modules(target: Target, objects: PyObjects) -> None:
    modules, main, globals_, value = target.said["main"]
    assert objects.find_keys(modules, frozenset({"__main__", "no such module"})) == {"__main__": main}
    assert objects.module_dict(main) == globals_
    assert objects.item(globals_, "GLOBAL") == value
    assert objects.attribute(main, "GLOBAL") == value


def every_answer(objects: PyObjects, address: int) -> list[object]:
    return [
        objects.attribute(address, "lock"),
        objects.class_entries(address, "lock"),
        objects.class_values(address),
        objects.type_name(address),
        objects.type_names(address),
        objects.text(address),
        objects.integer(address),
        objects.item(address, "lock"),
        objects.item(address, 3),
        objects.items(address),
        objects.module_dict(address),
        objects.function(address),
        objects.find_keys(address, frozenset({"lock"})),
        objects.cell_value(address),
    ]


@pytest.mark.parametrize("address", [0, 1, 8, 4096, -8, 1 << 47, (1 << 64) - 8, 1 << 70])
def test_an_address_that_is_not_mapped_is_none(objects: PyObjects, address: int) -> None:
    assert set(every_answer(objects, address)) == {None}


@settings(max_examples=200, deadline=None)
@given(data=st.binary(min_size=512, max_size=512), shift=st.integers(0, 8))
def test_random_memory_is_none(data: bytes, shift: int) -> None:
    buffer = ctypes.create_string_buffer(data, len(data))
    assert set(every_answer(own_objects(), ctypes.addressof(buffer) + shift)) == {None}


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(min_size=448, max_size=448),
    kind=st.sampled_from([str, int, dict, list, tuple, type, type(os), type(lambda: 0)]),
)
def test_random_memory_behind_a_real_type_never_raises(data: bytes, kind: type) -> None:
    buffer = ctypes.create_string_buffer(struct.pack("<QQ", 1, id(kind)) + data, 16 + len(data))
    every_answer(own_objects(), ctypes.addressof(buffer))


def test_type_pointers_in_a_circle_end() -> None:
    cells = (ctypes.c_uint64 * 256)()
    first = ctypes.addressof(cells)
    second = first + 1024
    for start, other in ((0, second), (128, first)):
        cells[start] = 1
        cells[start + 1] = other
        cells[start + 21] = 1 << 31
    assert set(every_answer(own_objects(), first)) == {None}


@pytest.mark.parametrize("size", [1 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
@pytest.mark.parametrize("kind", [list, tuple, dict, str, int])
def test_a_huge_size_is_none_and_costs_nothing(kind: type, size: int) -> None:
    cells = (ctypes.c_uint64 * 64)()
    cells[0], cells[1], cells[2], cells[3], cells[4] = 1, id(kind), size, size, size
    address = ctypes.addressof(cells)
    objects = own_objects()
    assert objects.text(address) is None
    assert objects.items(address) is None
    assert objects.integer(address) is None
    assert objects.item(address, "lock") is None


def test_the_work_for_one_process_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pystructs, "_MAX_WORK", 1000)
    names = {f"name {i}": i for i in range(5000)}
    objects = own_objects()
    assert objects.item(id(names), "name 500") == id(names["name 500"])
    assert objects.item(id(names), "name 4000") is None
    assert objects.text(id("name 500")) is None


def test_a_target_that_is_gone_is_an_error_not_none() -> None:
    memory = TargetMemory(os.getpid())
    layout = layout_of(sys.version_info[:2])
    assert layout is not None
    memory.close()
    with pytest.raises(OSError):
        PyObjects(memory, layout).attribute(id(memory), "pid")


@pytest.mark.parametrize(
    ("text", "version"),
    [("3.12.1", (3, 12)), ("3.13", (3, 13)), ("3", None), ("", None), (None, None), ("3.x", None), ("3." + "9" * 50, None)],
)
def test_versions_are_parsed(text: str | None, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("version", [(2, 7), (3, 10), (3, 15), (4, 0)])
def test_an_unknown_version_has_no_layout(version: tuple[int, int]) -> None:
    assert layout_of(version) is None
