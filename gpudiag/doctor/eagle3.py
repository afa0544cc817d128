"""Does the class that serves a model let an EAGLE-3 drafter read its hidden states? From the installed engine's source.

SGLang asks for a method on the class it loaded, the wrapper of a multimodal model included
(`set_eagle3_layers_to_capture`, srt/model_executor/model_runner.py, 0.5.23). vLLM asks isinstance(model, SupportsEagle3), a
runtime protocol: inheriting it, or having each of its members, both do (model_executor/models/interfaces.py, 0.33.0).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from gpudiag.doctor.reads import bounded
from gpudiag.doctor.sources import ClassSource, Lineage, Sources
from gpudiag.model.install import Eagle3Interface, Environment
from gpudiag.model.reading import Failed, Ok, Reading, Unavailable

SGLANG_MEMBER: Final = "set_eagle3_layers_to_capture"
VLLM_PROTOCOL: Final = "SupportsEagle3"
_SGLANG_MODELS: Final = "sglang.srt.models"
_VLLM_MODELS: Final = "vllm.model_executor.models"
VLLM_INTERFACES: Final = f"{_VLLM_MODELS}.interfaces"
_SOURCE_BYTES: Final = 8 << 20


def interface(environment: Environment, engine: str, architecture: str, at: float) -> Reading[Eagle3Interface]:
    """How the installed engine's class for this architecture stands to the interface of EAGLE-3."""
    package = environment.package(engine)
    if package is None or not package.origin:
        return Unavailable(reason=f"{engine} is not installed there", help="gpudiag doctor --python /path/to/venv/bin/python")
    sources = Sources(engine, Path(package.origin).parent)
    try:
        place = _place(sources, engine, architecture)
        read = place if isinstance(place, Unavailable) else _judge(sources, engine, architecture, *place)
    except OSError as error:
        return Failed(error=str(error))
    return read if isinstance(read, Unavailable) else Ok(value=read, at=at)


def module_of(environment: Environment, engine: str, architecture: str) -> str | None:
    """The module that the engine imports for this architecture, whether it parses or not; None if it has none."""
    package = environment.package(engine)
    if package is None or not package.origin:
        return None
    try:
        place = _place(Sources(engine, Path(package.origin).parent), engine, architecture)
    except OSError:
        return None
    return None if isinstance(place, Unavailable) else place[0]


def class_of(sources: Sources, engine: str, architecture: str) -> ClassSource | Unavailable:
    """The class that serves an architecture, as written."""
    place = _place(sources, engine, architecture)
    if isinstance(place, Unavailable):
        return place
    return sources.find(*place) or Unavailable(
        reason=f"{place[1]} was not found in {sources.file(place[0]) or place[0]}", help="gpudiag doctor --only GPD106"
    )


def _place(sources: Sources, engine: str, architecture: str) -> tuple[str, str] | Unavailable:
    """Module and name of the class that serves an architecture."""
    return _in_sglang(sources, architecture) if engine == "sglang" else _in_vllm(sources, architecture)


def _in_sglang(sources: Sources, architecture: str) -> tuple[str, str] | Unavailable:
    """SGLang imports every module of srt.models and takes the class of that name."""
    directory = sources.directory / "srt" / "models"
    if not directory.is_dir():
        return Unavailable(reason=f"{directory} is not there: another layout of SGLang", help="")
    pattern = re.compile(rb"^class\s+" + re.escape(architecture.encode()) + rb"\b", re.MULTILINE)
    for file in sorted(directory.rglob("*.py")):
        if pattern.search(bounded(file, _SOURCE_BYTES)):
            relative = file.relative_to(directory).with_suffix("")
            return ".".join((_SGLANG_MODELS, *relative.parts)).removesuffix(".__init__"), architecture
    return _absent("sglang", architecture)


def _in_vllm(sources: Sources, architecture: str) -> tuple[str, str] | Unavailable:
    registry = sources.file(f"{_VLLM_MODELS}.registry")
    entry = registered(bounded(registry, _SOURCE_BYTES)).get(architecture) if registry else None
    if entry is None:
        return _absent("vllm", architecture)
    return (entry[0] if entry[0].startswith("vllm.") else f"{_VLLM_MODELS}.{entry[0]}"), entry[1]


def _judge(sources: Sources, engine: str, architecture: str, module: str, name: str) -> Eagle3Interface | Unavailable:
    if engine == "sglang":
        return _judge_source(sources, engine, architecture, module, name, (SGLANG_MEMBER,), None)
    protocol = sources.find(VLLM_INTERFACES, VLLM_PROTOCOL)
    if protocol is None:
        return Unavailable(reason=f"this vLLM has no {VLLM_PROTOCOL}: it is too old for EAGLE-3", help="pip install -U vllm")
    required = tuple(sorted(m for m in sources.lineage(protocol).members if not m.startswith("_")))
    return _judge_source(sources, engine, architecture, module, name, required, VLLM_PROTOCOL)


def registered(source: bytes) -> dict[str, tuple[str, str]]:
    """Module and class of each architecture that a registry's dictionaries name: `"Arch": ("module", "Class")`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                name = key.value if isinstance(key, ast.Constant) else None
                parts = [e.value for e in value.elts if isinstance(e, ast.Constant)] if isinstance(value, ast.Tuple) else []
                if isinstance(name, str) and len(parts) == 2 and all(isinstance(p, str) for p in parts):
                    found.setdefault(name, (str(parts[0]), str(parts[1])))
    return found


def _absent(engine: str, architecture: str) -> Unavailable:
    return Unavailable(reason=f"{engine} here has no class for {architecture}", help=f"a newer {engine}, or the other engine")


def _judge_source(
    sources: Sources, engine: str, architecture: str, module: str, name: str, required: tuple[str, ...], protocol: str | None
) -> Eagle3Interface | Unavailable:
    start = sources.find(module, name)
    if start is None:
        file = sources.file(module)
        return Unavailable(
            reason=f"{name} was not found in {file or module}" + ("; the file may not parse" if file else ""),
            help="gpudiag doctor --only GPD106",
        )
    lineage = sources.lineage(start)
    return Eagle3Interface(
        engine=engine,
        architecture=architecture,
        file=start.file,
        line=start.line,
        class_name=start.name,
        bases=tuple(c.name for c in lineage.classes[1:]),
        missing=_missing(lineage, required, protocol),
        wrapped=_wrapped(sources, start, lineage, required, protocol),
        # A class may pass on what it lacks; whether it does shows only when it runs.
        unresolved=(*lineage.unresolved, *(f"{c.name}.__getattr__" for c in lineage.classes if "__getattr__" in c.members)),
    )


def _missing(lineage: Lineage, required: tuple[str, ...], protocol: str | None) -> tuple[str, ...]:
    if protocol is not None and protocol in lineage.names:
        return ()
    return tuple(m for m in required if m not in lineage.members)


def _wrapped(
    sources: Sources, start: ClassSource, lineage: Lineage, required: tuple[str, ...], protocol: str | None
) -> tuple[str, ...]:
    """Classes that the class's own body names, which have what it lacks: the inner model of a wrapper."""
    if not _missing(lineage, required, protocol):
        return ()
    inner = {c.name: c for name in sorted(start.mentions) if (c := sources.named(start, name)) is not None}
    return tuple(n for n, c in inner.items() if n not in lineage.names and not _missing(sources.lineage(c), required, protocol))
