"""Prints the addresses of many kinds of objects and of what their attributes are, then waits for its standard input to close."""
# mypy: ignore-errors

import json
import logging
import os
import sys
import threading
import types


class Plain:
    kind = "class attribute"

    def __init__(self, first, second):
        self.first = first
        self.second = second

    @property
    def computed(self):
        return self.first


class Child(Plain):
    def __init__(self):
        super().__init__("child first", "child second")
        self.third = object()


class Slots:
    __slots__ = ("left", "right", "unset")

    def __init__(self):
        self.left = object()
        self.right = object()


class SlotsChild(Slots):
    __slots__ = ("more",)

    def __init__(self):
        super().__init__()
        self.more = object()


class SlotsAndDict(Slots):
    def __init__(self):
        super().__init__()
        self.free = object()


class Meta(type):
    pass


class WithMeta(metaclass=Meta):
    shared = object()


class Many:
    def __init__(self):
        for i in range(60):
            setattr(self, f"attribute_{i}", object())


class ListChild(list):
    pass


class DictChild(dict):
    pass


class Text(str):  # noqa: SLOT000 (with a dict, as most subclasses of str are)
    pass


class OwnError(Exception):
    pass


def closure_of(lock):
    def inner():
        return lock

    return inner


GLOBAL = object()


KEEP = []
CASES = []


def case(name, target, attribute, value):
    KEEP.append((target, value))
    CASES.append([name, id(target), attribute, None if value is None else id(value)])


def instances():
    plain = Plain("one", object())
    case("inline values", plain, "first", plain.first)
    case("inline values, second", plain, "second", plain.second)
    case("class attribute", plain, "kind", Plain.kind)
    case("property", plain, "computed", None)
    case("method", plain, "__init__", None)
    case("missing", plain, "nothing", None)
    child = Child()
    case("inherited class", child, "third", child.third)
    case("attribute set by the base class", child, "first", child.first)
    shadow = Plain("one", object())
    shadow.kind = object()
    case("instance attribute over a class attribute", shadow, "kind", shadow.kind)
    many = Many()
    case("more attributes than shared keys", many, "attribute_59", many.attribute_59)
    case("more attributes than shared keys, first", many, "attribute_0", many.attribute_0)
    return plain, child


def dicts():
    opened = Plain("one", object())
    assert opened.__dict__
    case("materialised dict", opened, "second", opened.second)
    extended = Plain("one", object())
    extended.__dict__["later"] = value = object()
    case("materialised dict with a new key", extended, "later", value)
    case("materialised dict, old key", extended, "second", extended.second)
    replaced = Plain("one", object())
    replaced.__dict__ = {"second": value}
    case("replaced dict", replaced, "second", value)
    case("replaced dict, name that is gone", replaced, "first", None)
    deleted = Plain("one", object())
    del deleted.first
    case("deleted attribute", deleted, "first", None)
    case("attribute beside a deleted one", deleted, "second", deleted.second)


def slots():
    child = SlotsChild()
    case("slot", child, "right", child.right)
    case("slot of a child class", child, "more", child.more)
    case("slot that is not set", child, "unset", None)
    both = SlotsAndDict()
    case("slot of a class with a dict", both, "left", both.left)
    case("dict of a class with slots", both, "free", both.free)


def others(handler):
    case("attribute of a class", WithMeta, "shared", WithMeta.shared)
    case("class with a metaclass", WithMeta(), "shared", WithMeta.shared)
    case("attribute of a module", threading, "Lock", threading.Lock)
    error = OwnError("x")
    error.reason = object()
    case("exception with a dict", error, "reason", error.reason)
    listed = ListChild()
    listed.label = object()
    case("list with a dict", listed, "label", listed.label)
    space = types.SimpleNamespace(x=object())
    case("namespace", space, "x", space.x)
    case("standard library object", handler, "lock", handler.lock)
    case("an int has no attributes that are objects", 12345, "first", None)


def items():
    table = {f"key {i}": object() for i in range(300)}
    del table["key 7"]
    mixed = {1: object(), "a": object(), (2,): object(), -(2**70): object()}
    child = DictChild(a=object())
    sequence = [object(), object(), object()]
    pair = tuple(sequence[:2])
    KEEP.append((table, mixed, child, sequence, pair))
    return table, [
        ["dict", id(table), "key 299", id(table["key 299"])],
        ["dict, deleted key", id(table), "key 7", None],
        ["dict, missing key", id(table), "key 300", None],
        ["mixed dict, int", id(mixed), 1, id(mixed[1])],
        ["mixed dict, str", id(mixed), "a", id(mixed["a"])],
        ["dict subclass", id(child), "a", id(child["a"])],
        ["list", id(sequence), 1, id(sequence[1])],
        ["list, from the end", id(sequence), -1, id(sequence[-1])],
        ["list, outside", id(sequence), 3, None],
        ["tuple", id(pair), 1, id(pair[1])],
        ["no container", id(DictChild), "a", None],
    ]


def main():
    plain, child = instances()
    handler = logging.StreamHandler()
    dicts()
    slots()
    others(handler)
    table, item_cases = items()
    texts = ["", "ascii", "latin \xe9\xff", "greek \u03b1", "emoji \U0001f600", "x" * 300, "lone \udc80"]
    texts += [Text("subclass"), Text("subclass \u03b1")]
    numbers = [0, 1, -1, 7, 2**30, -(2**61) + 5, 2**89, True]
    function = closure_of(table)
    method = plain.__init__
    cell = function.__closure__[0]
    said = {
        "attributes": CASES,
        "items": item_cases,
        "texts": [[id(t), str(t)] for t in texts],
        "numbers": [[id(n), n] for n in numbers],
        "types": [
            [id(plain), ["__main__.Plain", "object"]],
            [id(child), ["__main__.Child", "__main__.Plain", "object"]],
            [id(table), ["dict", "object"]],
            [id(handler), ["logging.StreamHandler", "logging.Handler", "logging.Filterer", "object"]],
            [id(WithMeta), ["__main__.Meta", "type", "object"]],
        ],
        "function": [id(function), id(globals()), "closure_of.<locals>.inner", __file__, "lock", id(cell), id(table)],
        "method": [id(method), "Plain.__init__"],
        "main": [id(sys.modules), id(sys.modules["__main__"]), id(globals()), id(GLOBAL)],
    }
    print(json.dumps(said), flush=True)
    os.read(0, 1)


main()
