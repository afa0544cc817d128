"""Asks an installed engine which layers of the target it will feed a drafter: its own functions, in its own interpreter.

Where they lie: sglang 0.5.23 set_eagle3_layers_to_capture of the target's class, and the ids from
srt/model_executor/model_runner_components/spec_aux_hidden_state.py; vllm 0.32 and 0.33 v1/worker/gpu_model_runner.py (V1),
v1/worker/gpu/spec_decode/eagle/eagle3_utils.py (V2) and get_eagle3_default_aux_hidden_state_layers of the target's class.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from gpudiag.doctor import eagle3, probe
from gpudiag.doctor.install import absolute
from gpudiag.doctor.sources import ClassSource, Sources
from gpudiag.model.install import AuxLayers, Environment
from gpudiag.model.reading import Failed, Ok, Reading, Unavailable

How = Literal["import", "source"]

_LIMIT_S: Final = {"import": 120.0, "source": 20.0}
_SGLANG_READER: Final = (
    "sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state",
    "_resolve_eagle_aux_hidden_state",
)
_VLLM_READERS: Final = {
    "vllm-v1": ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "_get_eagle3_aux_layers_from_config"),
    "vllm-v2": ("vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils", None, "get_eagle3_aux_layers_from_config"),
}
_VLLM_DEFAULTS: Final = ("get_eagle3_default_aux_hidden_state_layers", "get_eagle3_aux_hidden_state_layers")
"""Newest first: a class may still carry a method of the older name that nobody calls."""


def look(
    environment: Environment, python: str, engine: str, architecture: str, layers: int, target: str, draft: str, how: How
) -> Reading[AuxLayers]:
    """What this engine will feed the drafter in `draft`; `how` import runs the engine's imports, source a few functions alone."""
    package = environment.package(engine)
    if package is None or not package.origin:
        return Unavailable(
            reason=f"{engine} is not installed there", help="gpudiag drafter check --python /path/to/venv/bin/python"
        )
    sources = Sources(engine, Path(package.origin).parent)
    try:
        found = (_sglang if engine == "sglang" else _vllm)(sources, architecture)
    except OSError as error:
        return Failed(error=str(error))
    if isinstance(found, Unavailable):
        return found
    request = {
        "engine": engine,
        "functions": found,
        "layers": layers,
        "target": absolute_path(target),
        "draft": absolute_path(draft),
        "how": how,
    }
    answer = probe.run("resolve_aux_layers", [json.dumps(request)], python=absolute(python), limit_s=_LIMIT_S[how])
    return _read(answer, engine)


def absolute_path(path: str) -> str:
    return str(Path(path).absolute())


def _read(answer: Reading[dict[str, Any]], engine: str) -> Reading[AuxLayers]:
    if not isinstance(answer, Ok):
        return answer
    value = answer.value
    notes = [str(note) for note in value.get("notes") or ()]
    if not value.get("ok"):
        return Failed(error=notes[-1] if notes else "the engine's functions gave no layers")
    plain = {**{k: value.get(k) for k in ("layers", "runner", "why")}, "engine": engine, "notes": notes}
    try:
        return Ok(value=msgspec.convert(plain, AuxLayers), at=answer.at, took_s=answer.took_s)
    except msgspec.ValidationError as error:
        return Failed(error=f"the probe's answer is not as expected: {error}")


def _sglang(sources: Sources, architecture: str) -> dict[str, Any] | Unavailable:
    start = eagle3.class_of(sources, "sglang", architecture)
    if isinstance(start, Unavailable):
        return start
    method = _defined(sources, start, (eagle3.SGLANG_MEMBER,))
    if method is None:
        return Unavailable(reason=f"{start.name} has no {eagle3.SGLANG_MEMBER}", help="gpudiag runbook GPD123")
    return {
        "method": method,
        "inner": _inner(sources, start),
        "reader": _function(sources, _SGLANG_READER[0], None, _SGLANG_READER[1]),
    }


def _inner(sources: Sources, start: ClassSource) -> dict[str, Any] | None:
    """The method of the model inside a wrapper, where only one comes into question."""
    mentioned = [one for name in sorted(start.mentions) if (one := sources.named(start, name)) is not None]
    methods = [m for one in mentioned if one.name != start.name and (m := _defined(sources, one, (eagle3.SGLANG_MEMBER,)))]
    distinct = {(m["file"], m["class"]): m for m in methods}
    return next(iter(distinct.values())) if len(distinct) == 1 else None


def _vllm(sources: Sources, architecture: str) -> dict[str, Any] | Unavailable:
    start = eagle3.class_of(sources, "vllm", architecture)
    if isinstance(start, Unavailable):
        return start
    default = _defined(sources, start, _VLLM_DEFAULTS)
    if default is None:
        return Unavailable(reason=f"{start.name} does not say which layers it gives by default", help="gpudiag runbook GPD123")
    readers = {path: _function(sources, *place) for path, place in _VLLM_READERS.items()}
    protocol = sources.find(eagle3.VLLM_INTERFACES, eagle3.VLLM_PROTOCOL)
    # A wrapper's own method asks that of its inner model, which as a rule is the protocol's.
    inner = _defined(sources, protocol, _VLLM_DEFAULTS) if protocol is not None else None
    return {"default": default, "inner": inner if inner != default else None, **readers}


def _defined(sources: Sources, start: ClassSource, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Where a class gets the first of these methods that it has."""
    classes = sources.lineage(start).classes
    for name in names:
        owner = next((c for c in classes if name in c.members), None)
        if owner is not None:
            return {"module": owner.module, "file": owner.file, "class": owner.name, "name": name}
    return None


def _function(sources: Sources, module: str, owner: str | None, name: str) -> dict[str, Any] | None:
    """Where a function lies; None if this version has no such file, or the class no such method."""
    file = sources.file(module)
    if file is None:
        return None
    if owner is not None:
        found = sources.find(module, owner)
        if found is None or name not in found.members:
            return None
    return {"module": module, "file": str(file), "class": owner, "name": name}
