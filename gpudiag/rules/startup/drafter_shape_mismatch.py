"""GPD215: the drafter's weights do not fit the class that the engine builds for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised
from gpudiag.rules.log.words import said

CODE: Final = "GPD215"
NAME: Final = "drafter-shape-mismatch"

_PATTERN: Final = re.compile(
    r"no module or parameter named '(?P<param>[\w.]{1,200})'|(?P<param2>\bd2t|t2d|draft_id_to_target_id)\b|"
    r"(?:size mismatch|shape mismatch|Tried to load weights of size|mat1 and mat2 shapes cannot be multiplied)[^\n]*"
)
_OF_DRAFTERS: Final = re.compile(r"draft|d2t|t2d|midlayer|fc")
"""Names of tensors that only drafters have. Any other name counts where the traceback goes through the drafter's loader."""


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    drafting = any(
        word in f"{f.file} {f.function}".lower()
        for f in hit.node.frames
        for word in ("eagle", "draft", "spec_decode", "speculative")
    )
    named = hit.get("param") or hit.get("param2")
    if named and not drafting and not _OF_DRAFTERS.search(named):
        named = ""
    if not drafting and not named:
        return
    what = f"parameter '{named}' does" if named else "its weights do"
    detail = "" if named else f" ({said(hit.found.group(0), 120)})"
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} cannot load the drafter: {what} not fit the class the engine built from the drafter's config{detail}",
        [
            "gpudiag drafter check --target MODEL --draft DRAFTER",
            "compare vocab_size, draft_vocab_size and hidden_size in the drafter's config.json with its tensors",
            "a drafter with draft_vocab_size equal to vocab_size must not carry d2t and t2d (vLLM)",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=85, evaluate=_evaluate)
