"""GPD611 before a start: SGLang will read an unquantised drafter as if it were quantised like its target."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit
from gpudiag.rules.drafter.pair import engines, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped

_PLAIN: Final = frozenset({"F32", "F16", "BF16", "I64", "I32", "BOOL"})

_SWITCH: Final = "--speculative-draft-model-quantization"


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if both.target is None or both.target.quantization is None:
        return skipped("the target's files are not quantised" if both.target else "no target named (--model)")
    if "sglang" not in engines(facts):
        return passed("vLLM takes a drafter as unquantised unless told otherwise")
    if _SWITCH in facts.asked.arguments:
        return passed(f"{_SWITCH} says what it has")
    if any(t.dtype not in _PLAIN for t in both.drafter.tensors):
        return passed("the drafter is quantised itself")
    made = CHECK.finding(
        f"The target is quantised ({both.target.quantization}), the drafter is not, and SGLang passes --quantization on to it",
        [
            seen("config-file", f"quantization_config of the target: {both.target.quantization}"),
            seen("checkpoint", f"types in the drafter: {', '.join(sorted({t.dtype for t in both.drafter.tensors}))}"),
        ],
        ("if you set --quantization, add --speculative-draft-model-quantization unquant",),
        culprits=(Culprit(node=f"file:{both.drafter.path}", path=both.drafter.path),),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD611",
        name="drafter-quantization-inherited",
        severity="warning",
        category="drafter",
        asks="will the drafter be read with the precision that it has?",
    ),
    evaluate=evaluate,
)
