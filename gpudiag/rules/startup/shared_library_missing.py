"""GPD203: the loader does not find a shared library."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised
from gpudiag.rules.startup.libraries import steps_for

CODE: Final = "GPD203"
NAME: Final = "shared-library-missing"

_PATTERN: Final = re.compile(
    r"(?P<library>[\w.+-]{1,120}\.so[\w.]{0,20}): (?:cannot open shared object file|file too short|invalid ELF header)"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    library = hit.get("library")
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} cannot load {library}: no such shared library on the loader's path",
        steps_for(library),
        path=library,
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
