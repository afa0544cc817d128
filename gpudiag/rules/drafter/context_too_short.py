"""GPD609 before a start: the drafter has positions for less than will be served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.rules.drafter.pair import Pair, engines, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown

_RAISES: Final = {
    "sglang": "SGLang writes the target's length into the drafter's configuration and goes on",
    "vllm": "vLLM makes the drafter's table of positions as long as the target's and goes on",
}


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if not both.is_eagle3:
        return skipped("no EAGLE-3 drafter")
    own = both.drafter.config.max_positions
    served = facts.asked.context or (both.target.max_positions if both.target is not None else None)
    if own is None:
        return unknown("the drafter's config.json has no max_position_embeddings: nothing says how long a text it has seen")
    if served is None:
        return unknown("the target's length is not known", "gpudiag drafter check DRAFT --target DIR --context TOKENS")
    return found(_short(both, own, served, facts), passed(f"{own} positions, {served} served"))


def _short(both: Pair, own: int, served: int, facts: Facts) -> Iterator[Finding]:
    if own >= served:
        return
    path = f"{both.drafter.path}/config.json"
    whose = "will be served" if facts.asked.context else "the target takes"
    yield CHECK.finding(
        f"The drafter has {own} positions, {whose} {served} tokens: beyond what it was trained on it drafts in vain",
        [
            seen("config-file", f"max_position_embeddings {own} in the drafter", path),
            seen(
                "config-file",
                f"{served} tokens {whose.split(maxsplit=1)[0]} {whose.split()[1]}"
                if facts.asked.context
                else f"{served} in the target",
            ),
            seen("convention", f"a trainer writes the length it trained on; {'; '.join(_RAISES[e] for e in engines(facts))}"),
        ],
        (
            "measure acceptance by length: gpudiag drafter measure on prompts as long as yours",
            "train on texts as long as those you serve; or name your own length: --context TOKENS",
            "SGLang: --speculative-draft-window-size limits what the drafter looks at (Llama drafters only)",
        ),
        culprits=(Culprit(node=f"file:{path}", path=path),),
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD609",
        name="drafter-context-too-short",
        severity="warning",
        category="drafter",
        asks="has the drafter seen texts as long as those that will be served?",
    ),
    evaluate=evaluate,
)
