"""A drafter and its target, from their files: each fault that serves silently is found, and a good pair is let alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpudiag.doctor import drafter_files, model_files, special_tokens
from gpudiag.doctor.reads import attempt
from gpudiag.drafter import splits
from gpudiag.model.doctor import CheckResult
from gpudiag.model.facts import Asked, ServedBy
from gpudiag.model.modelfiles import DraftConfig
from gpudiag.model.reading import Failed
from gpudiag.rules.drafter.aux_layers import PATHS, paths_of
from tests.doctor.checkpoints import DRAFTED, HIDDEN, ROWS, VOCABULARY, drafter, integers, plain, save, target, truths, weights
from tests.doctor.machines import facts, ok, result

ALL = ("602", "603", "604", "605", "610", "611")


def check(code: str, model: Path, draft: Path, engine: ServedBy | None = "sglang", algorithm: str | None = None) -> CheckResult:
    asked = Asked(engine=engine, model=str(model), draft=str(draft), algorithm=algorithm)
    given = facts(asked, model=ok(model_files.model(model)), drafter=ok(drafter_files.drafter(draft, model)))
    return result(code, given)


def config(nested: list[int] | None = None, top: list[int] | None = None) -> DraftConfig:
    raw: dict[str, Any] = {"hidden_size": 8}
    if nested is not None:
        raw["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": nested}
    if top is not None:
        raw["eagle_aux_hidden_state_layer_ids"] = top
    return drafter_files.draft_config(raw)


@pytest.mark.parametrize(
    ("nested", "top", "llama", "deepseek", "v1", "v2"),
    [
        # What the engines' own functions returned for a target of 61 layers: sglang 0.5.23, vllm 0.33.0.
        (None, None, (2, 30, 58), (2, 30, 58), (2, 30, 58), (2, 30, 58)),
        ([1, 29, 57], None, (2, 30, 58), (2, 30, 58), (1, 29, 57), (2, 30, 58)),
        ([2, 30, 58], None, (3, 31, 59), (2, 30, 58), (2, 30, 58), (2, 30, 58)),
        (None, [2, 30, 58], (2, 30, 58), (2, 30, 58), (2, 30, 58), (2, 30, 58)),
        (None, [10, 30, 50], (2, 30, 58), (2, 30, 58), (10, 30, 50), (10, 30, 50)),
        ([10, 30, 50], None, (11, 31, 51), (10, 30, 50), (10, 30, 50), (2, 30, 58)),
    ],
)
def test_layers_of_each_code_path(
    nested: list[int] | None, top: list[int] | None, llama: Any, deepseek: Any, v1: Any, v2: Any
) -> None:
    given = config(nested, top)
    names = ("sglang", "sglang-deepseek", "vllm-v1", "vllm-v2")
    assert [PATHS[n][1](given, 61) for n in names] == [llama, deepseek, v1, v2]


@pytest.mark.parametrize(
    ("architecture", "nested", "fed"),
    [
        ("Glm4MoeForCausalLM", [10, 30, 50], (11, 31, 51)),
        ("Glm4MoeLiteForCausalLM", [10, 30, 50], (10, 30, 50)),
        ("Glm4MoeLiteForCausalLM", [1, 30, 50], (2, 31, 51)),
        ("MiniMaxM3SparseForCausalLM", None, (2, 30, 58)),
        ("MiniMaxM3SparseForConditionalGeneration", None, (3, 31, 59)),
        ("MiniMaxM3SparseForConditionalGeneration", [10, 30, 50], (11, 31, 51)),
    ],
)
def test_the_code_path_of_an_architecture(architecture: str, nested: list[int] | None, fed: tuple[int, ...]) -> None:
    """As set_eagle3_layers_to_capture of these classes reads in sglang 0.5.23."""
    (path,) = paths_of("sglang", architecture)
    assert PATHS[path][1](config(nested), 61) == fed


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_good_pair_has_no_finding(tmp_path: Path, engine: ServedBy) -> None:
    model, draft = target(tmp_path / "m"), drafter(tmp_path / "eagle3")
    assert {code: s for code in ALL if (s := check(code, model, draft, engine).status) == "finding"} == {}


def test_layers_that_an_engine_ignores(tmp_path: Path) -> None:
    model = target(tmp_path / "m")
    draft = drafter(tmp_path / "eagle3", eagle_aux_hidden_state_layer_ids=[10, 30, 50])
    (found,) = check("602", model, draft, "sglang").findings
    assert "inputs of layers 2, 30, 58; it was trained on 10, 30, 50" in found.title
    assert "[9, 29, 49]" in found.next_steps[0]
    assert (found.severity, found.confidence) == ("error", "weak")
    assert check("602", model, draft, "vllm").status == "ok"


def test_a_projection_of_another_width(tmp_path: Path) -> None:
    wide = {**weights(), "fc.weight": plain(HIDDEN, 4 * HIDDEN)}
    (found,) = check("602", target(tmp_path / "m"), drafter(tmp_path / "eagle3", wide)).findings
    assert "32 numbers a token" in found.title


VOCABULARIES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "absolute ids": ({"d2t": integers(list(ROWS))}, {}, "reads? it as offsets|read it as offsets"),
    "no map": ({"d2t": None}, {}, "no map d2t"),
    "outside": ({"d2t": integers([VOCABULARY] * DRAFTED), "t2d": None}, {}, "outside the target's vocabulary"),
    "disagreement": ({"t2d": truths(ROWS[:-1])}, {}, "disagree in"),
    "another tokenizer": ({}, {"vocab_size": VOCABULARY + 1}, "vocabulary of 101"),
    "head of another size": ({"lm_head.weight": plain(DRAFTED + 1, HIDDEN)}, {}, "21 rows"),
}


@pytest.mark.parametrize("case", VOCABULARIES)
def test_vocabularies(tmp_path: Path, case: str) -> None:
    tensors, numbers, words = VOCABULARIES[case]
    changed = {name: t for name, t in {**weights(), **tensors}.items() if t is not None}
    found = check("603", target(tmp_path / "m"), drafter(tmp_path / "eagle3", changed, **numbers)).findings
    assert any(word in f.title for f in found for word in words.split("|"))


def test_another_algorithm_and_a_path_that_vllm_guesses_from(tmp_path: Path) -> None:
    model, draft = target(tmp_path / "m"), drafter(tmp_path / "draft")
    assert check("604", model, draft, algorithm="EAGLE").findings[0].severity == "error"
    assert check("604", model, draft, algorithm="eagle3").status == "ok"
    assert check("604", model, draft, "vllm").findings[0].severity == "info"


def test_names_with_a_prefix_and_missing_parts(tmp_path: Path) -> None:
    model = target(tmp_path / "m")
    prefixed = {f"model.{name}": tensor for name, tensor in weights().items()}
    (found,) = check("605", model, drafter(tmp_path / "eagle3", prefixed)).findings
    assert "'model.'" in found.next_steps[0]
    without = {n: t for n, t in weights().items() if n != "fc.weight"}
    assert "lacks fc.weight" in check("605", model, drafter(tmp_path / "eagle3-b", without)).findings[0].title


@pytest.mark.parametrize(("value", "status"), [(3, "ok"), (4, "finding")])
def test_an_embedding_of_its_own(tmp_path: Path, value: int, status: str) -> None:
    own = {**weights(), "embed_tokens.weight": plain(VOCABULARY, HIDDEN, value=value)}
    assert check("610", target(tmp_path / "m"), drafter(tmp_path / "eagle3", own)).status == status


def test_quantisation_is_inherited_by_sglang_alone(tmp_path: Path) -> None:
    model, draft = target(tmp_path / "m", quantization_config={"quant_method": "fp8"}), drafter(tmp_path / "eagle3")
    assert "unquant" in check("611", model, draft).findings[0].next_steps[0]
    assert check("611", model, draft, "vllm").status == "ok"


def test_without_the_target_the_layers_are_unknown(tmp_path: Path) -> None:
    draft = drafter(tmp_path / "eagle3")
    given = facts(Asked(draft=str(draft)), drafter=ok(drafter_files.drafter(draft, None)))
    assert result("602", given).status == "unknown"


def test_missing_short_and_linked_model_files(tmp_path: Path) -> None:
    model = target(tmp_path / "m")
    names = {f"w{i}": f"model-{i}.safetensors" for i in range(3)}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    save(model / "model-0.safetensors", {"w0": plain(4, 4)})
    (model / "model-0.safetensors").write_bytes((model / "model-0.safetensors").read_bytes()[:-1])
    (model / "model-1.safetensors").symlink_to("/nowhere/blob")
    read = model_files.model(model)
    assert (read.missing, read.short, read.broken_links) == (
        ("model-2.safetensors",),
        ("model-0.safetensors",),
        ("model-1.safetensors",),
    )
    assert len(result("120", facts(model=ok(read))).findings) == 3


def test_the_language_model_inside_a_multimodal_one(tmp_path: Path) -> None:
    model = target(tmp_path / "m", "KimiK25ForConditionalGeneration", text_config={"hidden_size": 7168, "num_hidden_layers": 61})
    read = model_files.model(model).config
    assert (read.architectures, read.hidden_size, read.layers) == (("KimiK25ForConditionalGeneration",), 7168, 61)


@pytest.mark.parametrize("text", ["[1]", "{", '"x"'])
def test_a_configuration_that_is_none_is_a_failure_and_no_crash(tmp_path: Path, text: str) -> None:
    model = target(tmp_path / "m")
    (model / "config.json").write_text(text)
    assert isinstance(attempt(lambda: model_files.model(model)), Failed)


def test_a_header_that_promises_too_much_is_not_read(tmp_path: Path) -> None:
    draft = drafter(tmp_path / "eagle3")
    (draft / "model.safetensors").write_bytes(b"\xff" * 64)
    assert isinstance(attempt(lambda: drafter_files.drafter(draft, None)), Failed)


@pytest.mark.parametrize(
    "odd",
    [
        {"architectures": 5},
        {"architectures": "LlamaForCausalLM"},
        {"architectures": [["LlamaForCausalLM"], 5]},
        {"speculators_config": {"verifier": {"architectures": 5}}},
        {"hidden_size": 10**400, "rope_theta": 10**400},
    ],
)
def test_fields_of_another_type_are_as_if_they_were_not_there(tmp_path: Path, odd: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(odd))
    assert model_files.config(tmp_path).architectures == ()
    assert model_files.config(tmp_path).hidden_size is None
    assert drafter_files.drafter(tmp_path, None).config.hidden_size is None


def test_a_configuration_inside_a_configuration_without_end_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"text_config":' * 900 + "{}" + "}" * 900)
    assert model_files.config(tmp_path).layers is None


def test_a_tokenizer_with_fields_of_another_type_names_no_token(tmp_path: Path) -> None:
    template = [{"name": ["default"], "template": "<think>"}]
    added = {"\u00b2": {"content": "<think>"}, "7" * 5000: {"content": "<think>"}, "3": {"content": "<think>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "added_tokens_decoder": added}))
    assert [one.id for one in special_tokens.special_tokens(tmp_path)] == [3]
    (tmp_path / "tokenizer.json").write_text(
        '{"added_tokens": [{"content": ["</think>"], "id": 1}, {"content": "</think>", "id": 2}]}'
    )
    assert splits.closing_ids(str(tmp_path)) == {2}
