"""GPD216: another process listens on the port."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD216"
NAME: Final = "port-already-bound"

_PATTERN: Final = re.compile(
    r"[Aa]ddress already in "
    r"use|[Pp]ort (?P<port2>\d+) is (?:already )?(?:in use|not available|occupied)"
)


def _asked(case: LogCase) -> str:
    """The port on the server's own command line, from the arguments it printed."""
    for event in case.facts.of("run-start"):
        found = re.search(r"'?port'?[:=] ?(\d{2,5})", event.text)
        if found:
            return found.group(1)
    return ""


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    text = hit.node.message
    port = hit.get("port2") or next(iter(re.findall(r"(?:port[:= ]+|:|', )(\d{2,5})\b", text)), "") or _asked(case)
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} cannot listen{f' on port {port}' if port else ''}: another process already does",
        [f"ss -ltnp 'sport = :{port}'" if port else "ss -ltnp", "stop that process, or start with another --port"],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
