"""GPD221: an option's value is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import from_line, raised
from gpudiag.rules.log.words import said as cut

CODE: Final = "GPD221"
NAME: Final = "launch-argument-invalid"

_PATTERN: Final = re.compile(
    r"^(?:[\w.]{0,120}ValidationError|pydantic[\w.]*): \d+ validation errors? "
    r"for (?P<model>\w+)|^ArgumentError|^argparse\.ArgumentTypeError|"
    r"^(?:AssertionError|ValueError): (?:[^\n]{0,80}(?:--[a-z][\w-]+|must be (?:divisible|"
    r"positive|between|one of|greater|less)|should be divisible|is not divisible)[^\n]*)|"
    r"Total number of attention heads \(\d+\) must be divisible"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is not None and event.kind == "usage-error":
        program, said = event.fields.get("program", "the server"), event.fields.get("message", "")
        title = f"{program} refuses an option: {cut(said, 200)}"
        steps = [f"{program} --help", "correct the option and start again"]
        yield from_line(case, CODE, NAME, event, title, steps, claim="the argument parser's last word")
        return
    hit = case.match(_PATTERN)
    if hit is None:
        return
    detail = re.search(r"(?:Value error|Assertion failed), (.{1,200})", hit.node.message)
    said = (detail.group(1) if detail else hit.node.message.partition("\n")[0] or hit.found.group(0)).partition(" [type=")[0]
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} refuses an option: {cut(said)}",
        [f"{case.facts.engine} --help, for the option's allowed values", "correct the option and start again"],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=40, evaluate=_evaluate)
