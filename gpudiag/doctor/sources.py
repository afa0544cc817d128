"""Classes of an installed package, read from its source: bases, members and imports. Nothing of it is imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from gpudiag.doctor.reads import bounded

_SOURCE_BYTES: Final = 8 << 20
_MAX_DEPTH: Final = 40


class ClassSource(Struct, frozen=True, kw_only=True):
    """One class as written: names of its bases, what its body defines, and the classes its body names."""

    module: str
    name: str
    file: str
    line: int
    bases: tuple[str, ...]
    members: frozenset[str]
    mentions: frozenset[str]


class Module(Struct, frozen=True, kw_only=True):
    """One module as written. `imports` maps a name to (module, name there); the second is '' for a module."""

    name: str
    file: str
    classes: dict[str, ClassSource]
    imports: dict[str, tuple[str, str]]


class Lineage(Struct, frozen=True, kw_only=True):
    """A class with all its bases inside the package, itself first. `unresolved` are bases in it that were not found."""

    classes: tuple[ClassSource, ...]
    unresolved: tuple[str, ...]

    @property
    def members(self) -> frozenset[str]:
        return frozenset().union(*(c.members for c in self.classes))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(c.name for c in self.classes)


class Sources:
    """The modules of one package directory, parsed when asked for."""

    def __init__(self, package: str, directory: Path) -> None:
        self.package = package
        self.directory = directory
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """A module by its dotted name; None if it is not in this package, not there, or does not parse."""
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def file(self, name: str) -> Path | None:
        head, _, rest = name.partition(".")
        if head != self.package:
            return None
        place = self.directory.joinpath(*rest.split(".")) if rest else self.directory
        for candidate in (place.with_suffix(".py") if rest else place / "__init__.py", place / "__init__.py"):
            if candidate.is_file():
                return candidate
        return None

    def find(self, module: str, name: str, depth: int = 0) -> ClassSource | None:
        """A class where it is defined, followed through re-exports."""
        found = self.module(module)
        if found is None or depth > _MAX_DEPTH:
            return None
        if name in found.classes:
            return found.classes[name]
        target = found.imports.get(name)
        return self.find(target[0], target[1] or name, depth + 1) if target else None

    def lineage(self, start: ClassSource) -> Lineage:
        """The class and every base that lies in this package, in the order in which they are met."""
        classes: dict[tuple[str, str], ClassSource] = {}
        unresolved: list[str] = []
        queue = [start]
        while queue:
            one = queue.pop(0)
            if (one.module, one.name) in classes:
                continue
            classes[one.module, one.name] = one
            for base in one.bases:
                found = self._base(one, base)
                if isinstance(found, ClassSource):
                    queue.append(found)
                elif found:
                    unresolved.append(base)
        return Lineage(classes=tuple(classes.values()), unresolved=tuple(dict.fromkeys(unresolved)))

    def named(self, one: ClassSource, name: str) -> ClassSource | None:
        """The class that a name inside another class's module stands for, if it lies in this package."""
        found = self._base(one, name)
        return found if isinstance(found, ClassSource) else None

    def _base(self, one: ClassSource, base: str) -> ClassSource | bool:
        """The class, True for one of this package that was not found, False for a foreign one."""
        module = self.module(one.module)
        if module is None:
            return True
        first, _, rest = base.partition(".")
        if not rest and first in module.classes:
            return module.classes[first]
        target = module.imports.get(first)
        if target is None:
            # A builtin, or a class made at run time; both have nothing to say here.
            return False
        where, name = target
        if where.partition(".")[0] != self.package:
            return False
        if rest:
            where, name = (f"{where}.{name}" if name else where), rest
        return self.find(where, name or first) or True

    def _parse(self, name: str) -> Module | None:
        file = self.file(name)
        if file is None:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(bounded(file, _SOURCE_BYTES), str(file))
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None
        here = name if file.name == "__init__.py" else name.rpartition(".")[0]
        classes = {node.name: _class(node, name, str(file)) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        return Module(name=name, file=str(file), classes=classes, imports=dict(_imports(tree, here)))

    def imported_modules(self, name: str, within: str) -> frozenset[str]:
        """Every module below `within` that this one needs, directly or through others of them, itself included."""
        seen: set[str] = set()
        queue = [name]
        while queue:
            one = queue.pop()
            if one in seen or not one.startswith(f"{within}.") or self.file(one) is None:
                continue
            seen.add(one)
            module = self.module(one)
            if module is not None:
                queue += [name for where, n in module.imports.values() for name in (where, f"{where}.{n}")]
        return frozenset(seen)


def _class(node: ast.ClassDef, module: str, file: str) -> ClassSource:
    return ClassSource(
        module=module,
        name=node.name,
        file=file,
        line=node.lineno,
        bases=tuple(text for base in node.bases if (text := _dotted(base))),
        members=frozenset(_members(node)),
        mentions=frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id[:1].isupper()),
    )


def _dotted(node: ast.expr) -> str:
    """'a.b.C' of a base; the class behind Generic[...] brackets; '' for anything computed."""
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return f"{head}.{node.attr}" if head else ""
    return node.id if isinstance(node, ast.Name) else ""


def _members(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            yield item.name
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id
        elif isinstance(item, ast.Assign):
            yield from (target.id for target in item.targets if isinstance(target, ast.Name))


def _imports(tree: ast.Module, here: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    (alias.asname or alias.name.partition(".")[0]),
                    (alias.name if alias.asname else alias.name.partition(".")[0], ""),
                )
        elif isinstance(node, ast.ImportFrom):
            where = _absolute(node, here)
            for alias in node.names:
                yield alias.asname or alias.name, (where, alias.name)


def _absolute(node: ast.ImportFrom, here: str) -> str:
    if not node.level:
        return node.module or ""
    parts = here.split(".")
    base = ".".join(parts[: len(parts) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base
