"""Rules that rest on the text of one exception and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised
from gpudiag.rules.log.words import said

_QUOTED = 200
"""Characters of the exception's own words in a title."""


def matching(code: str, name: str, *, specificity: int, pattern: str, title: str, next_steps: Sequence[str]) -> LogRule:
    """An error, said of the first exception in the chain of causes whose text the pattern finds.

    In the title `{who}` becomes the process that raised it, `{message}` its message, `{found}` what the pattern found.
    """
    compiled = re.compile(pattern)

    def evaluate(case: LogCase) -> Iterable[Finding]:
        hit = case.match(compiled)
        if hit is not None:
            told = title.replace("{message}", said(hit.node.message, _QUOTED)).replace(
                "{found}", said(hit.found.group(0), _QUOTED)
            )
            yield raised(case, code, name, hit.node, told, next_steps)

    return LogRule(code=code, name=name, severity="error", specificity=specificity, evaluate=evaluate)
