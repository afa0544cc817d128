"""What vLLM remembers of model classes, against the files that those classes are made of.

`$VLLM_CACHE_ROOT/modelinfos/MODULE-CLASS.json` holds a description and a hash of the class's own module file. A base class
in another file may change without vLLM noticing (model_executor/models/registry.py, _get_modelinfo_module_hash, 0.33.0).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from gpudiag.doctor.reads import bounded
from gpudiag.doctor.sources import Sources
from gpudiag.model.install import CachedInfo, Environment

_MODELS: Final = "vllm.model_executor.models"
_PREFIX: Final = "vllm-model_executor-models-"
_BYTES: Final = 8 << 20
_MAX_FILES: Final = 500


def stale(environment: Environment, cache_root: Path) -> tuple[CachedInfo, ...]:
    """Descriptions that vLLM will still use and that are older than a module their class builds on. Raises OSError."""
    package = environment.package("vllm")
    if package is None or not package.origin:
        return ()
    sources = Sources("vllm", Path(package.origin).parent)
    files = sorted((cache_root / "modelinfos").glob(f"{_PREFIX}*.json"))[:_MAX_FILES]
    return tuple(found for path in files if (found := _stale(path, sources)))


def _stale(path: Path, sources: Sources) -> CachedInfo | None:
    module = f"{_MODELS}." + path.stem.removeprefix(_PREFIX).rpartition("-")[0].replace("-", ".")
    own = sources.file(module)
    try:
        stored = json.loads(bounded(path, _BYTES)).get("hash")
    except (ValueError, AttributeError, RecursionError):
        return None
    if own is None or stored not in hashes(own):
        return None
    written = path.stat().st_mtime
    needed = [f for name in sources.imported_modules(module, _MODELS) if (f := sources.file(name))]
    changed = sorted(str(f) for f in needed if f != own and f.stat().st_mtime > written)
    return CachedInfo(path=str(path), model_module=module, changed=tuple(changed)) if changed else None


def hashes(model: Path) -> frozenset[str]:
    """The keys that versions of vLLM give a module: of its bytes, or of names and bytes of its files."""
    files = sorted(model.parent.rglob("*.py")) if model.name == "__init__.py" else [model]
    named = hashlib.md5(usedforsecurity=False)
    for file in files:
        named.update(file.relative_to(model.parent).as_posix().encode())
        named.update(b"\0")
        named.update(bounded(file, _BYTES))
        named.update(b"\0")
    return frozenset({named.hexdigest(), hashlib.md5(bounded(model, _BYTES), usedforsecurity=False).hexdigest()})
