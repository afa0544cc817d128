"""GPD214: the target model does not offer the hidden states that EAGLE-3 reads."""

from __future__ import annotations

from typing import Final

from gpudiag.rules.log.case import LogRule
from gpudiag.rules.log.matching import matching

RULE: Final[LogRule] = matching(
    "GPD214",
    "eagle3-interface-refused",
    specificity=85,
    pattern=(
        r"does not support EAGLE-?3|SupportsEagle3|has no attribute '(?:set_eagle3_layers_to_capture|"
        r"set_aux_hidden_state_layers|get_eagle3_\w+|capture_aux_hidden_states)'|"
        r"EAGLE-?3 (?:interface|is (?:not|only) supported)|Eagle3 is only supported for[^\n]*"
    ),
    title="{who}: the target model's class does not offer EAGLE-3's interface (auxiliary hidden states)",
    next_steps=(
        "gpudiag drafter check --target MODEL --draft DRAFTER",
        (
            "use a target whose class implements SupportsEagle3 (vLLM) or "
            "set_eagle3_layers_to_capture (SGLang), or upgrade the engine"
        ),
        "start without speculation to confirm: leave the speculative options out",
    ),
)
