"""GPD610 before a start: the drafter's own embedding is not the target's, or it has none that it could use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.rules.drafter.pair import Pair, engines, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if not both.is_eagle3:
        return skipped("no EAGLE-3 drafter")
    made = [*_none(both), *_different(both, facts)]
    own = both.tensor("embed_tokens.weight", "model.embed_tokens.weight")
    if own is None:
        return found(made, passed("it has none and shares the target's"))
    compared = both.drafter.embedding
    if compared is None:
        return found(made, unknown("its embedding could not be compared with the target's (other shape, type or no target)"))
    return found(made, passed(f"{compared.equal} of {compared.compared} rows equal the target's"))


def _none(both: Pair) -> Iterator[Finding]:
    own, hidden = both.tensor("embed_tokens.weight", "model.embed_tokens.weight"), both.drafter.config.hidden_size
    if own is None and hidden and both.target is not None and both.target.hidden_size and hidden != both.target.hidden_size:
        yield CHECK.finding(
            f"The drafter is {hidden} wide, the target {both.target.hidden_size}, and it has no embedding of its own to use",
            [
                seen("checkpoint", "no tensor embed_tokens"),
                seen("config-file", f"hidden_size {hidden} and {both.target.hidden_size}"),
            ],
            ("export the drafter with its embedding",),
            culprits=(Culprit(node=f"file:{both.drafter.path}", path=both.drafter.path),),
        )


def _different(both: Pair, facts: Facts) -> Iterator[Finding]:
    compared = both.drafter.embedding
    if compared is None or not compared.compared or compared.equal == compared.compared:
        return
    uses = {"sglang": "SGLang overwrites it with the target's", "vllm": "vLLM keeps it"}
    yield CHECK.finding(
        f"The drafter's embedding differs from the target's: {'; '.join(uses[e] for e in engines(facts))}",
        [seen("checkpoint", f"{compared.compared - compared.equal} of {compared.compared} rows that were compared differ")],
        (
            "if it was trained with the target's embedding, take embed_tokens out of the file",
            "if with its own, serve it with vLLM",
        ),
        culprits=(Culprit(node=f"file:{both.drafter.path}", path=both.drafter.path),),
        severity="warning",
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD610",
        name="drafter-embedding-mismatch",
        severity="error",
        category="drafter",
        asks="does the drafter use the embedding that it was trained with?",
    ),
    evaluate=evaluate,
)
