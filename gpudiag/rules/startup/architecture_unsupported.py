"""GPD213: this version of the engine does not know the model's architecture."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD213"
NAME: Final = "architecture-unsupported"

_PATTERN: Final = re.compile(
    r"Model architectures? \[?(?P<arch>'[^\]]{1,200}?'|[\w', ]+)\]? (?:are|is) not supported|Cannot find "
    r"model module|has no (?:vLLM|SGLang|sglang) implementation|Unsupported architectures?: (?P<arch2>[\w', \[\]]+)|"
    r"model type `(?P<type>[\w.-]+)` but Transformers does not recognize this architecture|does "
    r"not recognize this architecture|Unrecognized model in|Unrecognized configuration class"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    name = (hit.get("arch") or hit.get("arch2") or hit.get("type")).strip("[]'\"") or "this model"
    version = f" {case.facts.version}" if case.facts.version else ""
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{case.facts.engine}{version} does not support the architecture {name}",
        [
            f"grep -A2 architectures {case.facts.model or 'MODEL'}/config.json",
            "look the architecture up in the engine's list of supported models, and upgrade the engine or transformers",
            "a model with its own code needs --trust-remote-code",
        ],
        path=f"{case.facts.model}/config.json" if case.facts.model else None,
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=65, evaluate=_evaluate)
