"""GPD605 before a start: the engine will not find weights of the drafter under the names that the file has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.rules.drafter.pair import Pair, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import listing, plural

_KNOWN: Final = re.compile(
    r"(?:midlayer|layers\.\d+)\..+|fc\.(?:weight|bias)|norm\.weight|lm_head\.weight|d2t|t2d|embed_tokens\.weight|"
    r"fc_norm\.\d\.weight|aux_norm_(?:low|mid|high)\.weight|input_norm\.weight|mask_hidden|"
    r"verifier_(?:norm|lm_head)\.weight|hidden_norm\.weight"
)
"""Names that LlamaForCausalLMEagle3 and Eagle3DeepseekV2ForCausalLM take: sglang 0.5.23 srt/models/llama_eagle3.py and
kimi_k25_eagle3.py, vllm 0.33.0 model_executor/models/llama_eagle3.py."""
_PREFIXES: Final = ("model.", "module.", "draft_model.", "_orig_mod.")
_NEEDED: Final = ("fc.weight", "norm.weight")


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if not both.is_eagle3:
        return skipped("no EAGLE-3 drafter")
    if not both.drafter.tensors:
        return found(_none(both), passed(""))
    return found([*_unknown(both), *_missing(both)], passed(f"{plural(len(both.drafter.tensors), 'tensor')} with names that fit"))


def _none(both: Pair) -> Iterator[Finding]:
    yield CHECK.finding(
        f"{both.drafter.path} has no safetensors weights",
        [seen("file-system", "no *.safetensors with a tensor")],
        ("export the drafter as safetensors",),
        culprits=_culprit(both),
    )


def _unknown(both: Pair) -> Iterator[Finding]:
    names = [t.name for t in both.drafter.tensors if not _KNOWN.fullmatch(t.name)]
    if not names:
        return
    prefix = next((p for p in _PREFIXES if all(n.startswith(p) for n in names)), None)
    yield CHECK.finding(
        f"{plural(len(names), 'weight')} of the drafter {'has a name' if len(names) == 1 else 'have names'} no engine knows: "
        f"SGLang drops them silently, vLLM refuses",
        [seen("checkpoint", f"names: {listing(names, 6)}", "\n".join(names[:12]))],
        (
            f"rename them: take off the prefix {prefix!r}"
            if prefix
            else "rename them as the drafter's class has them (midlayer.*, fc, norm)",
            "until then SGLang drafts with random weights: acceptance length 1.0",
        ),
        culprits=_culprit(both),
    )


def _missing(both: Pair) -> Iterator[Finding]:
    names = {t.name for t in both.drafter.tensors}
    bare = {n.removeprefix(p) for n in names for p in ("", *_PREFIXES)}
    lacking = [n for n in _NEEDED if n not in bare]
    if not any(re.match(r"(?:midlayer|layers\.\d+)\.self_attn\.", n) for n in bare):
        lacking.append("midlayer.self_attn.*")
    if both.drafter.config.draft_vocab_size is not None and "lm_head.weight" not in bare:
        lacking.append("lm_head.weight")
    if lacking:
        yield CHECK.finding(
            f"The drafter lacks {listing(lacking)}: that part stays random",
            [seen("checkpoint", f"{plural(len(names), 'tensor')}, none of these")],
            ("export the drafter again, with all of its layer",),
            culprits=_culprit(both),
        )


def _culprit(both: Pair) -> tuple[Culprit, ...]:
    return (Culprit(node=f"file:{both.drafter.path}", path=both.drafter.path),)


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD605",
        name="drafter-weights-dropped",
        severity="error",
        category="drafter",
        asks="will the engine find all of the drafter's weights?",
    ),
    evaluate=evaluate,
)
