"""The demo's processes under other names: a copy whose modules, classes, functions and variables are called at random.

Whatever is right about the demo must be right about the copy, so that nothing can rest on a name.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import keyword
import random
import string
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from gpudiag.demo.plan import Names
from gpudiag.demo.run import SCRIPTS

ENTRY = ("__init__", "__main__")


@dataclass(frozen=True)
class Renamed:
    """Arguments for `start`: `start(..., scripts=copy.scripts, names=copy.names)`. `words` maps old names to new ones."""

    scripts: Path
    names: Names
    words: dict[str, str]


def rename_scripts(target: Path, rng: random.Random, source: Path = SCRIPTS) -> Renamed:
    """Write the copy below `target`, an empty directory."""
    trees = {path.stem: ast.parse(path.read_bytes()) for path in sorted(source.glob("*.py"))}
    protected = _protected(trees)
    words: dict[str, str] = {}
    for name in sorted((_defined(trees) | set(trees)) - protected - set(ENTRY)):
        words[name] = _word(rng, name, set(words.values()))
    package = target / _word(rng, "scripts", set(words.values()))
    package.mkdir(parents=True)
    renamer = _Renamer(words)
    for stem, tree in trees.items():
        (package / f"{words.get(stem, stem)}.py").write_text(ast.unparse(renamer.visit(tree)) + "\n")
    names = Names(prefix=_word(rng, "demo", set()), lock=_word(rng, "lock", set()), kernel=_word(rng, "kernel", set()))
    return Renamed(scripts=package, names=names, words=words)


def functions_and_classes(source: Path = SCRIPTS) -> set[str]:
    """Names of all functions, methods and classes of a package, but for the special ones that Python itself calls."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = (node for path in source.glob("*.py") for node in ast.walk(ast.parse(path.read_bytes())))
    return {node.name for node in nodes if isinstance(node, kinds) and not node.name.startswith("__")}


class _Renamer(ast.NodeTransformer):
    def __init__(self, words: dict[str, str]) -> None:
        self.words = words

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "attr", "arg", "name"):
            old = getattr(node, field, None)
            if isinstance(old, str) and not isinstance(node, ast.alias):
                setattr(node, field, self.words.get(old, old))
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            node.module = self.words.get(node.module, node.module)
            for alias in node.names:
                alias.name = self.words.get(alias.name, alias.name)
        return super().generic_visit(node)


def _defined(trees: dict[str, ast.Module]) -> set[str]:
    found = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return {name for name in found if not name.startswith("__")}


def _protected(trees: dict[str, ast.Module]) -> set[str]:
    """Names that mean something outside the scripts: the language, the library, the fields of settings.json."""
    protected = set(keyword.kwlist) | set(dir(builtins)) | set(dir(str)) | set(dir(dict)) | set(dir(list)) | set(dir(bytes))
    protected |= {"self", "cls"}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    protected |= _names_of(importlib.import_module(alias.name)) | set(alias.name.split("."))
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                protected |= _names_of(importlib.import_module(node.module))
            elif isinstance(node, ast.ClassDef) and any(isinstance(decorator, ast.Call) for decorator in node.decorator_list):
                fields = [field.target for field in node.body if isinstance(field, ast.AnnAssign)]
                protected |= {field.id for field in fields if isinstance(field, ast.Name)}
    return protected


def _names_of(module: ModuleType) -> set[str]:
    """Attributes of a module and of what is in it, and the parameters of its functions."""
    names = set(dir(module))
    for thing in vars(module).values():
        if inspect.ismodule(thing):
            continue
        names |= set(dir(thing))
        if callable(thing):
            names |= _parameters(thing)
    return names


def _parameters(thing: object) -> set[str]:
    try:
        return set(inspect.signature(thing).parameters)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return set()


def _word(rng: random.Random, old: str, taken: set[str]) -> str:
    while True:
        word = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(5, 9)))
        word = word.capitalize() if old[:1].isupper() else word
        if word not in taken and not keyword.iskeyword(word) and word not in dir(builtins):
            return word
