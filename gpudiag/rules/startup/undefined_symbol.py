"""GPD204: a compiled extension wants a symbol that the library it found does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised
from gpudiag.rules.startup.symbols import demangle, owner_of, uses_old_strings

CODE: Final = "GPD204"
NAME: Final = "undefined-symbol"

_PATTERN: Final = re.compile(
    r"^(?!.{0,200}dlvsym failed)(?:.*?[\s:'\"])?(?P<library>[^\s:'\"]{1,300}\.so[\w.]{0,20}): undefined symbol: (?P<symbol>\w+)",
    re.MULTILINE,
)
"""Recordings hold lines of NCCL about functions that it does without, from when they were read as causes."""


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    library, symbol = hit.get("library"), hit.get("symbol")
    plain, owner = demangle(symbol) or symbol, owner_of(symbol)
    short = library.rpartition("/")[2]
    old = " (with the old string ABI)" if uses_old_strings(symbol) else ""
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} cannot load {short}: {owner} has no {plain}{old}; the two come from different builds",
        [
            f"pip install --force-reinstall --no-deps the package that owns {short}, built for the installed {owner}",
            "pip check",
            f"nm -D --defined-only $(python -c 'import torch; print(torch.__path__[0])')/lib/*.so | grep {symbol[:60]}",
        ],
        path=library,
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=85, evaluate=_evaluate)
