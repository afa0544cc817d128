"""GPD701: this version of the engine does not know an option."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.model.log import Speaker
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import from_line, raised

CODE: Final = "GPD701"
NAME: Final = "flag-unknown-to-version"

_UNKNOWN: Final = re.compile(
    r"unrecognized arguments?: (?P<flags>.{1,300})|(?:no such option|unknown option|"
    r"unexpected option):? (?P<flag>--?[\w-]+)|invalid choice: '(?P<choice>[^']*)'"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is None or event.kind != "usage-error":
        hit = (
            case.match(re.compile(r"got an unexpected keyword argument '(?P<name>\w+)'"))
            if case.failure.trace is not None
            else None
        )
        if hit is not None and any(
            "ServerArgs" in f.function or "EngineArgs" in f.function or "server_args" in f.file or "arg_utils" in f.file
            for f in hit.node.frames
        ):
            yield raised(
                case,
                CODE,
                NAME,
                hit.node,
                f"{{who}} does not know the argument '{hit.get('name')}'",
                ["check the option's name in this version: --help"],
            )
        return
    found = _UNKNOWN.search(event.fields.get("message", ""))
    if found is None:
        return
    flag = (found.group("flags") or found.group("flag") or found.group("choice") or "").strip()
    program = event.fields.get("program", "the server")
    yield from_line(
        case,
        CODE,
        NAME,
        event,
        f"{program} does not know {flag[:120]}",
        [
            f"{program} --help | grep -i -- {flag.split(' ')[0][:60]}",
            "the option may be spelt differently, have been removed, or need a newer release of the engine",
        ],
        claim="the argument parser's last word",
        speaker=Speaker(),
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=70, evaluate=_evaluate)
