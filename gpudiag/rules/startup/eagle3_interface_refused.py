"""GPD214: the target model does not offer the hidden states that EAGLE-3 reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD214"
NAME: Final = "eagle3-interface-refused"

_PATTERN: Final = re.compile(
    r"does not support EAGLE-?3|SupportsEagle3|has no attribute '(?:set_eagle3_layers_to_capture|"
    r"set_aux_hidden_state_layers|get_eagle3_\w+|capture_aux_hidden_states)'|"
    r"EAGLE-?3 (?:interface|is (?:not|only) supported)|Eagle3 is only supported for[^\n]*"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        "{who}: the target model's class does not offer EAGLE-3's interface (auxiliary hidden states)",
        [
            "gpudiag drafter check --target MODEL --draft DRAFTER",
            (
                "use a target whose class implements SupportsEagle3 (vLLM) or "
                "set_eagle3_layers_to_capture (SGLang), or upgrade the engine"
            ),
            "start without speculation to confirm: leave the speculative options out",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=85, evaluate=_evaluate)
