"""Both engines side by side."""

from __future__ import annotations

import shlex

import pytest

from gpudiag.model.doctor import Choice
from gpudiag.model.facts import Asked, Facts, ServedBy
from gpudiag.model.install import Distribution, Eagle3Interface, Environment, Install, Package
from gpudiag.model.library import Images, Library, Target, Unit
from gpudiag.model.modelfiles import DraftConfig, Drafter, ModelConfig, ModelFiles
from gpudiag.render.doctor import text
from gpudiag.rules.preflight import judge, registry
from tests.doctor.machines import behind_iommu, facts, ok

CONFIG = ModelConfig(
    architectures=("KimiK25ForConditionalGeneration",),
    model_type="kimi",
    hidden_size=8,
    vocab_size=100,
    layers=61,
    max_positions=4096,
    quantization="fp8",
    dtype="bfloat16",
)
DRAFT = DraftConfig(
    hidden_size=8,
    target_hidden_size=None,
    vocab_size=100,
    draft_vocab_size=None,
    layers=1,
    nested_ids=(10, 30, 50),
    top_ids=None,
    norm_output=None,
    norm_before_residual=None,
    max_positions=2048,
)


def install(engine: str, version: str, *, missing: tuple[str, ...] = (), wrapped: tuple[str, ...] = ()) -> Install:
    environment = Environment(
        python=f"/{engine}/bin/python",
        version="3.12.0",
        prefix="/",
        path=(),
        extension_suffixes=(),
        distributions=(Distribution(name=engine, version=version, where=""),),
        packages=(Package(name=engine, origin=f"/{engine}/__init__.py"),),
    )
    interface = Eagle3Interface(
        engine=engine,
        architecture=CONFIG.architectures[0],
        file="/f.py",
        line=1,
        class_name=CONFIG.architectures[0],
        bases=(),
        missing=missing,
        wrapped=wrapped,
    )
    return Install(python=environment.python, environment=ok(environment), eagle3=ok((interface,)))


def case(engine: ServedBy | None = None, tp: int = 1, others: tuple[Install, ...] = ()) -> Facts:
    fa3 = Library(
        path="/sglang/site-packages/sgl_kernel/flash_ops.abi3.so",
        size_bytes=1,
        images=(Images(Target("cubin", 90, "a"), 1, 1, 1),),
        units=(Unit((Target("cubin", 90, "a"),), 1),),
    )
    return facts(
        Asked(engine=engine, python="/p", model="/m", draft="/d e", gpus_for=("12.0",), tp=tp),
        model=ok(ModelFiles(path="/m", config=CONFIG, weight_bytes=1, shards=1)),
        drafter=ok(Drafter(path="/d e", architectures=("LlamaForCausalLMEagle3",), config=DRAFT, tensors=())),
        install=ok(install("sglang", "0.5.23")),
        others=others,
        libraries=ok((fa3,)),
        **(behind_iommu() if tp > 1 else {}),
    )


def choices(given: Facts) -> dict[str, Choice]:
    report = judge.report(given, judge.judge(given, registry.CHECKS), command="doctor", version="0.1.0")
    return {c.engine: c for c in report.choices}


def test_one_engine_that_works_and_one_that_was_not_looked_at() -> None:
    found = choices(case())
    assert (found["sglang"].supported, found["sglang"].version) == (True, "0.5.23")
    assert found["vllm"].supported is None
    assert "add --python" in found["vllm"].why


def test_a_second_interpreter_is_compared() -> None:
    found = choices(case(others=(install("vllm", "0.33.0", missing=("supports_eagle3",), wrapped=("DeepseekV3ForCausalLM",)),)))
    assert (found["vllm"].supported, found["vllm"].version) == (False, "0.33.0")
    assert "DeepseekV3ForCausalLM inside it has it" in found["vllm"].why


def test_the_command_has_what_this_pair_needs() -> None:
    found = choices(case(tp=2))
    words = shlex.split(found["sglang"].command)
    assert words[words.index("--speculative-draft-model-path") + 1] == "/d e"
    assert {"unquant", "EAGLE3", "--tp", "--disable-custom-all-reduce"} <= set(words)
    assert '"method": "eagle3"' in found["vllm"].command


def test_kernels_and_what_is_slow_are_said_in_words() -> None:
    found = choices(case())
    assert found["sglang"].kernels == (
        "SGLang attention backend fa3: no code on 12.0; instead: --attention-backend flashinfer or triton",
    )
    assert found["sglang"].slow == ("SGLang feeds layers 10, 30, 50; the drafter was trained on 11, 31, 51",)
    assert len(found["vllm"].slow) == 2


def test_who_named_an_engine_has_chosen() -> None:
    assert choices(case(engine="sglang")) == {}


@pytest.mark.parametrize("plain", [False, True])
def test_the_page_shows_both(plain: bool) -> None:
    given = case()
    report = judge.report(given, judge.judge(given, registry.CHECKS), command="doctor", version="0.1.0")
    drawn = text(report, plain=plain)
    assert "sglang 0.5.23: KimiK25ForConditionalGeneration takes an EAGLE-3 drafter" in " ".join(drawn.split())
    assert drawn.isascii() == plain
