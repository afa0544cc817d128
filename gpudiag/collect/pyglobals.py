"""Module globals and closures of a frame, which py-spy's locals do not hold: found by way of objects that they do hold.

A frame's function is usually at hand: as a method of `self`, as a local of its caller, as the target of its Thread.
Everything else hangs on sys.modules, and from any Python function the way there is short: its builtins hold a
`__spec__`, the methods of which have the globals of importlib._bootstrap, where `sys` is a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.collect.pyobject import PyFunction, PyObjects
from gpudiag.model.stack import Frame, PyStack

_MAX_OBJECTS: Final = 400
"""Locals that are tried as a way to sys.modules."""
_CALLS: Final = {"Thread.run": "_target", "Timer.run": "function", "_WorkItem.run": "fn"}
"""Standard library frames that call what an attribute of their `self` holds (threading.py, concurrent/futures/thread.py)."""


class Globals:
    """Globals of the frames of one process; remembers what it found."""

    def __init__(self, objects: PyObjects, stacks: tuple[PyStack, ...]) -> None:
        self._objects = objects
        self._stacks = stacks
        self._by_file: dict[str, int | None] = {}
        self._modules: int | None = None
        self._looked_for_modules = False

    def of(self, stack: PyStack, index: int) -> int | None:
        """Address of the globals dict of a frame."""
        function = self.function(stack, index)
        if function is not None:
            return function.globals
        file = stack.frames[index].file
        if file not in self._by_file:
            self._by_file[file] = self._module_globals(file)
        return self._by_file[file]

    def closure(self, stack: PyStack, index: int) -> dict[str, int] | None:
        """The cells of a frame's closure by variable name; None if its function was not found."""
        function = self.function(stack, index)
        return function.closure if function else None

    def function(self, stack: PyStack, index: int) -> PyFunction | None:
        """The function object that a frame runs."""
        frame = stack.frames[index]
        for address in self._functions(stack, index):
            function = self._objects.function(address)
            if function is not None and (function.qualname, function.file) == (frame.function, frame.file):
                return function
        return None

    def _functions(self, stack: PyStack, index: int) -> Iterator[int]:
        frame = stack.frames[index]
        name = frame.function.rsplit(".", 1)[-1]
        for address in list(frame.locals.values())[:1]:
            # The method may be one that a subclass overrides, reached through super().
            yield from self._objects.class_entries(self._objects.cell_value(address) or address, name) or ()
        if index + 1 < len(stack.frames):
            yield from self._called_by(stack.frames[index + 1])

    def _called_by(self, caller: Frame) -> Iterator[int]:
        attribute = _CALLS.get(caller.function)
        if attribute is not None and "self" in caller.locals:
            called = self._objects.attribute(caller.locals["self"], attribute)
            if called is not None:
                yield called
                yield from self._partial(called)
        for address in caller.locals.values():
            value = self._objects.cell_value(address)
            if value is not None:
                yield value

    def _partial(self, address: int) -> Iterator[int]:
        if self._objects.type_name(address) == "functools.partial":
            called = self._objects.attribute(address, "func")
            if called is not None:
                yield called

    def _module_globals(self, file: str) -> int | None:
        """Globals of the module that was loaded from a file; None if it was loaded twice, as script and as module."""
        modules = self._module_table()
        found = self._objects.find_keys(modules, _module_names(file)) if modules else None
        namespaces = {self._objects.module_dict(module) for module in (found or {}).values()} - {None}
        matching = [namespace for namespace in namespaces if namespace and self._is_from(namespace, file)]
        return matching[0] if len(matching) == 1 else None

    def _is_from(self, namespace: int, file: str) -> bool:
        path = self._objects.item(namespace, "__file__")
        return path is not None and _same_file(self._objects.text(path), file)

    def _module_table(self) -> int | None:
        if not self._looked_for_modules:
            self._looked_for_modules = True
            self._modules = self._find_module_table()
        return self._modules

    def _find_module_table(self) -> int | None:
        objects = self._objects
        for function in self._some_functions():
            spec = objects.item(function.builtins, "__spec__")
            methods = objects.class_entries(spec, "__init__") if spec else None
            bootstrap = objects.function(methods[0]) if methods else None
            system = objects.item(bootstrap.globals, "sys") if bootstrap else None
            namespace = objects.module_dict(system) if system else None
            modules = objects.item(namespace, "modules") if namespace else None
            if modules is not None:
                return modules
        return None

    def _some_functions(self) -> Iterator[PyFunction]:
        """Functions that locals are, or that the classes of locals have: at most one per class."""
        seen: set[str | None] = set()
        tried = 0
        # Outermost frames first: a thread's is Thread._bootstrap, whose `self` has methods.
        for frame in (frame for stack in self._stacks for frame in reversed(stack.frames)):
            for address in frame.locals.values():
                name = self._objects.type_name(address)
                if name in seen and name not in ("function", "method"):
                    continue
                seen.add(name)
                tried += 1
                if tried > _MAX_OBJECTS:
                    return
                for candidate in (address, *(self._objects.class_values(address) or ())):
                    function = self._objects.function(candidate)
                    if function is not None:
                        yield function
                        break


def _module_names(file: str) -> frozenset[str]:
    """Every name under which a file may have been imported: c, b.c, a.b.c ... for /x/a/b/c.py, and the main module."""
    parts = file.removesuffix(".py").strip("/").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return frozenset({"__main__", "__mp_main__", *(".".join(parts[i:]) for i in range(len(parts)))})


def _same_file(path: str | None, file: str) -> bool:
    return path is not None and (path == file or (not path.startswith("/") and file.endswith(f"/{path.removeprefix('./')}")))
