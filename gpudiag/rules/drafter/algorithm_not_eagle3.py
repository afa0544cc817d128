"""GPD604 before a start: an EAGLE-3 drafter is going to be served as another kind of drafter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.rules.drafter.pair import Pair, engines, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if not both.is_eagle3:
        return skipped("no EAGLE-3 drafter")
    how = {"sglang": "--speculative-algorithm EAGLE3", "vllm": '"method": "eagle3"'}
    return found(_faults(both, facts), passed(f"serve it with {' or '.join(how[e] for e in engines(facts))}"))


def _faults(both: Pair, facts: Facts) -> Iterator[Finding]:
    culprits = (Culprit(node=f"file:{both.drafter.path}", path=both.drafter.path),)
    what = seen("config-file", f"architectures {list(both.drafter.architectures)}", f"{both.drafter.path}/config.json")
    asked = facts.asked.algorithm
    if asked is not None and asked.upper() != "EAGLE3":
        yield CHECK.finding(
            f"This is an EAGLE-3 drafter, and it is to be served as {asked}: no draft will be accepted, and no error says why",
            [what, seen("config-file", f"algorithm {asked}")],
            ("SGLang: --speculative-algorithm EAGLE3; vLLM: method eagle3 in --speculative-config",),
            culprits=culprits,
        )
    elif (
        asked is None
        and not both.drafter.config.speculators
        and "vllm" in engines(facts)
        and "eagle3" not in both.drafter.path.lower()
    ):
        yield CHECK.finding(
            "vLLM guesses the method from the drafter's path, which does not say eagle3",
            [what, seen("source-text", "config/speculative.py of vllm 0.33.0 looks for eagle3 in the name of the model")],
            ('name it: --speculative-config \'{"method": "eagle3", "model": ..., "num_speculative_tokens": 3}\'',),
            culprits=culprits,
            severity="info",
        )


def _names_itself(both: Pair) -> bool:
    """Whether vLLM finds out the method by itself: from the form of speculators, or from the path."""
    return both.drafter.config.speculators or "eagle3" in both.drafter.path.lower()


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD604",
        name="algorithm-not-eagle3",
        severity="error",
        category="drafter",
        asks="will the drafter be served as what it is?",
    ),
    evaluate=evaluate,
)
