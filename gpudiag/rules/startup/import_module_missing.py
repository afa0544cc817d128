"""GPD202: a Python module that the server imports is not installed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD202"
NAME: Final = "import-module-missing"

_PATTERN: Final = re.compile(
    r"^(?:ModuleNotFoundError|ImportError|importlib\.metadata\.PackageNotFoundError|"
    r"(?:importlib_metadata\.)?PackageNotFoundError): "
    r"(?:No module named '(?P<module>[\w.]+)'|No package metadata was found for (?P<dist>[\w.-]+))(?!; '[\w.]+' is not a package)"
)

PACKAGE_OF: Final = {
    "sgl_kernel": "sglang-kernel",
    "flash_attn": "flash-attn",
    "deep_gemm": "sgl-deep-gemm",
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
    "flashinfer": "flashinfer-python",
    "tvm_ffi": "apache-tvm-ffi",
    "openai_harmony": "openai-harmony",
}
"""The package that brings a module, where the names differ."""


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    module = hit.get("module") or hit.get("dist")
    package = PACKAGE_OF.get(module.partition(".")[0], module.partition(".")[0].replace("_", "-"))
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} cannot import '{module}': it is not installed in the server's environment",
        [f"pip install {package}", "pip check", "python -c 'import sys; print(sys.executable, sys.path)'"],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=70, evaluate=_evaluate)
