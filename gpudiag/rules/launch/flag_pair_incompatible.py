"""GPD705 before a start: two options that the engine refuses together, after it has loaded the weights or before.

Each pair with where the engine refuses it (SGLang 0.5.23): srt/arg_groups/speculative_hook.py, srt/speculative/draft_utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.engines.words import Given, number_of, taken_apart, value_of
from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped

_STEPS: Final = ("--speculative-num-steps",)
_TOP_K: Final = ("--speculative-eagle-topk",)
_TOKENS: Final = ("--speculative-num-draft-tokens",)
_ALGORITHM: Final = ("--speculative-algorithm", "--speculative-algo")
_TREES_ON_PAGES: Final = ("flashinfer", "fa3", "triton")
_EAGLE: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN"})


def evaluate(facts: Facts) -> Answer:
    if not facts.asked.arguments:
        return skipped("no options named")
    if facts.asked.engine != "sglang":
        return skipped("pairs are known for SGLang only")
    options = taken_apart(facts.asked.arguments, facts.flags.value if isinstance(facts.flags, Ok) else None)
    return found(_pairs(options), passed("no pair that is refused"))


def _pairs(options: tuple[Given, ...]) -> Iterator[Finding]:
    algorithm = (value_of(options, _ALGORITHM) or "").upper()
    if algorithm not in _EAGLE:
        return
    yield from _backend(options, algorithm)
    steps, top_k, tokens = (number_of(options, names) for names in (_STEPS, _TOP_K, _TOKENS))
    adaptive = value_of(options, ("--speculative-adaptive",)) is not None
    if steps is None and not adaptive and (top_k is not None or tokens is not None):
        yield _made(
            "--speculative-eagle-topk and --speculative-num-draft-tokens need --speculative-num-steps",
            "SGLang asserts that all three are given, or none",
            "add --speculative-num-steps, or leave all three out",
        )
    page = number_of(options, ("--page-size",)) or 1
    backend = value_of(options, ("--attention-backend",))
    if (top_k or 1) > 1 and page > 1 and backend not in (None, *_TREES_ON_PAGES):
        yield _made(
            f"--speculative-eagle-topk {top_k} with --page-size {page} is not supported in attention backend {backend}",
            f"a tree of drafts on pages is supported in {', '.join(_TREES_ON_PAGES)}",
            "--speculative-eagle-topk 1, or --page-size 1, or one of those backends",
        )
    if (top_k or 1) > 1 and value_of(options, ("--speculative-use-rejection-sampling",)) is not None:
        yield _made(
            f"--speculative-use-rejection-sampling needs --speculative-eagle-topk 1, not {top_k}",
            "rejection sampling follows one chain of drafts",
            "--speculative-eagle-topk 1, or leave --speculative-use-rejection-sampling out",
        )


def _backend(options: tuple[Given, ...], algorithm: str) -> Iterator[Finding]:
    for name in ("--attention-backend", "--decode-attention-backend", "--speculative-draft-attention-backend"):
        if value_of(options, (name,)) == "torch_native":
            yield _made(
                f"{algorithm} is not supported in attention backend torch_native ({name})",
                "the backends with a draft step are flashinfer, fa3, fa4, triton, trtllm_mha, intel_amx and others, not this one",
                "serve without a drafter (--no-draft), with another backend, or with vLLM, whose EAGLE-3 runs on a CPU too",
            )
            return


def _made(title: str, why: str, step: str) -> Finding:
    return CHECK.finding(title, [seen("convention", why), seen("config-file", "both are asked for")], (step,))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD705",
        name="flag-pair-incompatible",
        severity="error",
        category="launch",
        asks="do the options go together?",
    ),
    evaluate=evaluate,
)
