"""EAGLE-3's interface read from source: inherited, passed on by a wrapper, forgotten by it, or out of sight."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from gpudiag.doctor import eagle3, model_cache
from gpudiag.model.facts import Asked
from gpudiag.model.install import ChangedFile, Eagle3Interface, Environment, Install, Package, Verification
from gpudiag.model.reading import Ok, Unavailable
from tests.doctor.machines import facts, ok, result
from tests.doctor.trees import put

SGLANG = {
    "sglang/srt/models/__init__.py": "",
    "sglang/srt/models/llama.py": (
        "class LlamaForCausalLM:\n    def set_eagle3_layers_to_capture(self, ids=None):\n        pass\n"
    ),
    "sglang/srt/models/qwen.py": (
        "from sglang.srt.models.llama import LlamaForCausalLM\n\n\nclass QwenForCausalLM(LlamaForCausalLM):\n    pass\n"
    ),
    "sglang/srt/models/kimi.py": (
        "from torch import nn\nfrom .llama import LlamaForCausalLM as Inner\n\n\nclass KimiWrapper(nn.Module):\n"
        "    def __init__(self):\n        self.language_model = Inner()\n"
    ),
    "sglang/srt/models/magic.py": (
        "class MagicWrapper:\n    def __getattr__(self, name):\n        return getattr(self.inner, name)\n"
    ),
    "sglang/srt/models/lost.py": "from sglang.srt.models.gone import Gone\n\n\nclass LostForCausalLM(Gone):\n    pass\n",
}
PROTOCOL = (
    "from typing import ClassVar, Literal, Protocol\n\n\nclass SupportsEagleBase(Protocol):\n"
    "    has_own_lm_head: bool = False\n\n\n"
    "class SupportsEagle3(SupportsEagleBase, Protocol):\n    supports_eagle3: ClassVar[Literal[True]] = True\n\n"
    "    def set_aux_hidden_state_layers(self, layers):\n        ...\n"
)
VLLM = {
    "vllm/__init__.py": "",
    "vllm/model_executor/models/interfaces.py": PROTOCOL,
    "vllm/model_executor/models/registry.py": (
        '_TEXT = {"LlamaForCausalLM": ("llama", "LlamaForCausalLM"), "OldForCausalLM": ("old", "OldForCausalLM"),\n'
        '    "DuckForCausalLM": ("old", "DuckForCausalLM")}\n'
    ),
    "vllm/model_executor/models/llama.py": (
        "from .interfaces import SupportsEagle3\nfrom .base import Base\n\n\n"
        "class LlamaForCausalLM(Base, SupportsEagle3):\n    pass\n"
    ),
    "vllm/model_executor/models/base.py": "class Base:\n    pass\n",
    "vllm/model_executor/models/old.py": (
        "from .base import Base\n\n\nclass OldForCausalLM(Base):\n"
        "    def get_eagle3_aux_hidden_state_layers(self):\n        ...\n\n\n"
        "class DuckForCausalLM(Base):\n    has_own_lm_head = False\n    supports_eagle3 = True\n\n"
        "    def set_aux_hidden_state_layers(self, layers):\n        ...\n"
    ),
}


def environment(root: Path, engine: str, files: dict[str, str]) -> Environment:
    for path, text in files.items():
        put(root, path, text)
    origin = put(root, f"{engine}/__init__.py", "")
    return Environment(
        python="/p",
        version="3.12.0",
        prefix="/",
        path=(),
        extension_suffixes=(),
        distributions=(),
        packages=(Package(name=engine, origin=str(origin), locations=(str(origin.parent),)),),
    )


def look(root: Path, engine: str, architecture: str) -> Eagle3Interface:
    found = eagle3.interface(environment(root, engine, SGLANG if engine == "sglang" else VLLM), engine, architecture, 0.0)
    assert isinstance(found, Ok), found
    return found.value


@pytest.mark.parametrize(
    ("engine", "architecture", "missing"),
    [
        ("sglang", "LlamaForCausalLM", False),
        ("sglang", "QwenForCausalLM", False),
        ("sglang", "KimiWrapper", True),
        ("vllm", "LlamaForCausalLM", False),
        ("vllm", "DuckForCausalLM", False),
        ("vllm", "OldForCausalLM", True),
    ],
)
def test_who_has_it(tmp_path: Path, engine: str, architecture: str, missing: bool) -> None:
    assert bool(look(tmp_path, engine, architecture).missing) == missing


def install(one: Eagle3Interface) -> Ok[Install]:
    return ok(Install(python="/p", environment=Unavailable(reason="", help=""), eagle3=ok((one,))))


def test_a_wrapper_that_forgets_it_is_named_with_the_model_inside(tmp_path: Path) -> None:
    one = look(tmp_path, "sglang", "KimiWrapper")
    (found,) = result("123", facts(Asked(python="/p"), install=install(one))).findings
    assert "though LlamaForCausalLM inside it does" in found.title
    assert (found.culprits[0].file, found.culprits[0].line) == (str(tmp_path / "sglang/srt/models/kimi.py"), 5)


@pytest.mark.parametrize("architecture", ["MagicWrapper", "LostForCausalLM"])
def test_what_source_cannot_tell_is_unknown(tmp_path: Path, architecture: str) -> None:
    one = look(tmp_path, "sglang", architecture)
    assert result("123", facts(Asked(python="/p"), install=install(one))).status == "unknown"


@pytest.mark.parametrize(("engine", "files"), [("sglang", SGLANG), ("vllm", VLLM)])
def test_an_architecture_that_the_engine_does_not_know(tmp_path: Path, engine: str, files: dict[str, str]) -> None:
    found = eagle3.interface(environment(tmp_path, engine, files), engine, "NoSuchForCausalLM", 0.0)
    assert isinstance(found, Unavailable)
    assert "no class for NoSuchForCausalLM" in found.reason


def test_a_file_that_does_not_parse_is_unavailable_and_leads_to_the_syntax_check(tmp_path: Path) -> None:
    files = {**SGLANG, "sglang/srt/models/llama.py": "class LlamaForCausalLM:\n    def f(:\n"}
    found = eagle3.interface(environment(tmp_path, "sglang", files), "sglang", "LlamaForCausalLM", 0.0)
    assert isinstance(found, Unavailable)
    assert "GPD106" in found.help


def cached(root: Path, module: str, text: str, written: float) -> Path:
    digest = hashlib.md5(f"{module}.py".encode() + b"\0" + text.encode() + b"\0", usedforsecurity=False).hexdigest()
    name = f"cache/modelinfos/vllm-model_executor-models-{module}-LlamaForCausalLM.json"
    path = put(root, name, f'{{"hash": "{digest}", "modelinfo": {{}}}}')
    os.utime(path, (written, written))
    return path


def test_a_cached_description_older_than_a_base_class(tmp_path: Path) -> None:
    about = environment(tmp_path, "vllm", VLLM)
    models = tmp_path / "vllm/model_executor/models"
    for file in models.glob("*.py"):
        os.utime(file, (1000, 1000))
    path = cached(tmp_path, "llama", (models / "llama.py").read_text(), 2000)
    assert model_cache.stale(about, tmp_path / "cache") == ()
    os.utime(models / "base.py", (3000, 3000))
    (found,) = model_cache.stale(about, tmp_path / "cache")
    assert (found.path, found.changed) == (str(path), (str(models / "base.py"),))
    path.write_text('{"hash": "of another file"}')
    assert model_cache.stale(about, tmp_path / "cache") == ()


@pytest.mark.parametrize(("edited", "status"), [(True, "finding"), (False, "ok")])
def test_a_reinstall_makes_files_newer_and_is_no_edit(tmp_path: Path, edited: bool, status: str) -> None:
    about = environment(tmp_path, "vllm", VLLM)
    models = tmp_path / "vllm/model_executor/models"
    cached(tmp_path, "llama", (models / "llama.py").read_text(), 2000)
    stale = model_cache.stale(about, tmp_path / "cache")
    paths = [p for one in stale for p in one.changed] if edited else []
    changes = tuple(ChangedFile(path=p, distribution="vllm", change="modified") for p in paths)
    verified = Verification(files=5, compiled=0, hashed_all=False, changes=changes, faults=(), unverifiable={})
    read = ok(Install(python="/p", environment=ok(about), stale_caches=ok(stale), verification=ok(verified)))
    assert result("124", facts(Asked(python="/p"), install=read)).status == status
