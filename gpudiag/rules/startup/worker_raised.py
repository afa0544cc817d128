"""GPD220: a process raised an exception that no other rule names. What is left, so it never beats another rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.model.log import Traceback
from gpudiag.rules.log.case import LogCase, LogRule, blamed_frame
from gpudiag.rules.log.findings import raised
from gpudiag.rules.log.words import said

CODE: Final = "GPD220"
NAME: Final = "worker-raised"

_PASSING_ON: Final = frozenset(
    {"CalledProcessError", "KeyError", "AttributeError", "StopIteration", "StopAsyncIteration", "LookupError", "IndexError"}
)
"""Often caught on the way and only the context of what really went wrong."""


def _evaluate(case: LogCase) -> Iterable[Finding]:
    node = _telling(case)
    if node is None:
        return
    frame = blamed_frame(node)
    where = (
        f" in {frame.function or frame.file.rpartition('/')[2]} ({frame.file.rpartition('/')[2]}:{frame.line})" if frame else ""
    )
    yield raised(
        case,
        CODE,
        NAME,
        node,
        f"{{who}} raised {node.name}{where}: {said(node.message)}",
        [
            f"read the source around {frame.file}:{frame.line}" if frame else "start again with the log level raised",
            "search the engine's issues for the exception's text",
            "pip check",
        ],
    )


def _telling(case: LogCase) -> Traceback | None:
    """The deepest exception by 'direct cause'.

    One that was only being handled counts if it is not of the kind that code catches as a matter of course.
    """
    top = case.failure.trace
    if top is None:
        return None
    usable = [n for n in top.chain() if n.victim is None and n.exception]
    if not usable:
        return None
    node = top
    while True:
        deeper = next(
            (c for c in (*node.embedded, *node.group, node.cause) if c is not None and any(n in usable for n in c.chain())), None
        )
        if deeper is None and node.context is not None and node.context in usable and node.context.name not in _PASSING_ON:
            deeper = node.context
        if deeper is None:
            return node if node in usable else usable[0]
        node = deeper


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=0, evaluate=_evaluate)
