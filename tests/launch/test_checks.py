"""Checks of a start: GPUs, what of them is visible, and options that do not go together."""

from __future__ import annotations

import pytest

from gpudiag.model.facts import Asked, Facts
from tests.doctor.machines import facts, gpu, gpu_set, ok, result
from tests.launch.requests import table

FOUR = gpu_set(*(gpu(n) for n in range(4)))


def asked(engine: str = "sglang", *words: str, tp: int = 1, pp: int = 1, dp: int = 1) -> Asked:
    return Asked(engine=engine, arguments=words, tp=tp, pp=pp, dp=dp)  # type: ignore[arg-type]


def titles(code: str, case: Facts) -> list[str]:
    return [f.title for f in result(code, case).findings]


def pairs(*words: str, engine: str = "sglang") -> list[str]:
    return titles("705", facts(asked(engine, *words), flags=ok(table(engine))))


@pytest.mark.parametrize(
    ("case", "said", "step"),
    [
        (asked(tp=8), "tensor parallelism 8 needs 8 GPUs, and this host has 4", "--tp 4"),
        (asked(tp=4, pp=2), "tensor parallelism 4 x pipeline 2 needs 8", "--tp 2"),
        (asked("vllm", tp=2, dp=4), "data 4 needs 8", "--tp 1"),
        (asked("vllm", tp=2, dp=8), "data 8 needs 16", "fewer pipeline stages or replicas: there are 8"),
        (asked(tp=6), "needs 6", "--tp 3"),
    ],
)
def test_more_ranks_than_gpus(case: Asked, said: str, step: str) -> None:
    found = result("702", facts(case, gpus=FOUR))
    assert said in found.findings[0].title
    assert step in found.findings[0].next_steps[0]


@pytest.mark.parametrize(
    "case",
    [
        asked(tp=4),
        asked(tp=2, pp=2),
        # Replicas of data-parallel attention share the GPUs of the group.
        asked("sglang", "--enable-dp-attention", tp=4, dp=4),
        asked("sglang", "--nnodes", "2", tp=8),
        asked("vllm", "--data-parallel-size-local", "1", tp=2, dp=8),
        # One command for each replica, behind a balancer of one's own; and a Ray cluster that has the GPUs.
        asked("vllm", "--data-parallel-rank", "3", tp=2, dp=8),
        asked("vllm", "--data-parallel-hybrid-lb", tp=2, dp=8),
        asked("vllm", "--distributed-executor-backend", "ray", tp=8),
        asked("vllm", "--data-parallel-backend=ray", tp=2, dp=8),
        asked("sglang", "--use-ray", tp=8),
    ],
)
def test_as_many_ranks_as_gpus_or_several_hosts(case: Asked) -> None:
    assert titles("702", facts(case, gpus=FOUR)) == []


def test_parts_of_gpus_are_not_counted() -> None:
    divided = gpu_set(gpu(0, mig=ok(True)))
    assert result("702", facts(asked(tp=4), gpus=divided)).status == "skipped"


@pytest.mark.parametrize(
    ("visible", "case", "said"),
    [
        ("0,1,7", asked(tp=2), "names '7', which is not here: CUDA ends the list there, and hides 1 GPU"),
        ("7,0,1", asked(), "hides 3 GPUs"),
        ("0,0,1", asked(), "names '0' twice: then there is no GPU at all"),
        ("0,GPU-0", asked(), "names 'GPU-0' twice"),
        ("0,,1", asked(), "names '', which is not here: CUDA ends the list there, and hides 2 GPUs"),
        ("\u00b2", asked(), "names '\u00b2', which is not here"),
        ("9" * 5000, asked(), "which is not here"),
        ("0,1", asked(tp=4), "shows 2 GPUs of 4; tensor parallelism 4 needs 4"),
        ("", asked(), "shows 0 GPUs of 4"),
        ("-1", asked(), "names '-1'"),
        ("GPU-9", asked(), "which is not here"),
        ("GPU-", asked(), "which is not here"),
    ],
)
def test_variables_that_show_other_gpus_than_are_needed(visible: str, case: Asked, said: str) -> None:
    (title,) = titles("704", facts(case, gpus=FOUR, environment={"CUDA_VISIBLE_DEVICES": visible}))
    assert said in title


@pytest.mark.parametrize(
    ("visible", "case"),
    [
        ("0,1", asked(tp=2)),
        ("3", asked()),
        ("GPU-2,gpu-3", asked(tp=2)),
        (" 0 , 1 ,", asked(tp=2)),
        # The host itself has too few: that is 702.
        ("0,1,2,3", asked(tp=8)),
    ],
)
def test_variables_that_show_enough(visible: str, case: Asked) -> None:
    assert titles("704", facts(case, gpus=FOUR, environment={"CUDA_VISIBLE_DEVICES": visible})) == []


def test_without_the_variable_or_a_gpu_nothing_is_judged() -> None:
    assert result("704", facts(asked(tp=2), gpus=FOUR)).status == "skipped"


EAGLE = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*EAGLE, "--attention-backend", "torch_native"), "EAGLE3 is not supported in attention backend torch_native"),
        (("--speculative-algorithm", "eagle", "--speculative-eagle-topk", "4"), "need --speculative-num-steps"),
        (
            (*EAGLE, "--speculative-eagle-topk", "4", "--page-size", "64", "--attention-backend", "trtllm_mha"),
            "with --page-size 64 is not supported in attention backend trtllm_mha",
        ),
        ((*EAGLE, "--speculative-eagle-topk", "4", "--speculative-use-rejection-sampling"), "needs --speculative-eagle-topk 1"),
    ],
)
def test_pairs_that_sglang_refuses(words: tuple[str, ...], said: str) -> None:
    (title,) = pairs(*words)
    assert said in title


@pytest.mark.parametrize(
    "words",
    [
        (*EAGLE, "--attention-backend", "fa3"),
        ("--attention-backend", "torch_native"),
        ("--speculative-algorithm", "EAGLE3", "--speculative-eagle-topk", "1", "--speculative-adaptive"),
        ("--speculative-algorithm", "NGRAM", "--attention-backend", "torch_native"),
        (*EAGLE, "--speculative-eagle-topk", "4", "--page-size", "64", "--attention-backend", "triton"),
        (*EAGLE, "--speculative-eagle-topk", "1", "--page-size", "64", "--attention-backend", "trtllm_mha"),
        (*EAGLE, "--speculative-eagle-topk", "1", "--speculative-use-rejection-sampling"),
    ],
)
def test_pairs_that_sglang_takes(words: tuple[str, ...]) -> None:
    assert pairs(*words) == []


def test_pairs_of_the_other_engine_are_not_judged() -> None:
    assert result("705", facts(asked("vllm", "--attention-backend", "torch_native"))).status == "skipped"
