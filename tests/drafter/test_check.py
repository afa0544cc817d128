"""Static check of a drafter: no word about a pair that fits, in each dialect, and the right one about each planted fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudiag.drafter.check import check
from gpudiag.model.facts import ServedBy
from gpudiag.model.finding import Finding
from tests.doctor import checkpoints
from tests.doctor.checkpoints import DRAFTED, HIDDEN, IDS, POSITIONS, ROWS, VOCABULARY, Tensors, integers, plain, truths, weights

Make = Callable[[Path], Path]


def sglang(tensors: Tensors | None = None, **config: Any) -> Make:
    return lambda place: checkpoints.drafter(place, tensors, **config)


def vllm(tensors: Tensors | None = None, **config: Any) -> Make:
    """vLLM's own form: layers.0, and input layers at the top level."""
    own = {"architectures": ["Eagle3LlamaForCausalLM"], IDS: [2, 30, 58], **config}
    return lambda place: checkpoints.drafter(place, tensors or weights("layers.0"), **own)


def speculators(tensors: Tensors | None = None, **config: Any) -> Make:
    return lambda place: checkpoints.speculators(place, tensors, **config)


def changed(tensors: dict[str, Any], layer: str = "midlayer") -> Tensors:
    """The weights with some replaced or taken out (None)."""
    return {name: one for name, one in {**weights(layer), **tensors}.items() if one is not None}


def norms(*names: str, width: int = HIDDEN) -> dict[str, Any]:
    return {f"{name}.weight": plain(width) for name in names}


FC_NORMS = norms("fc_norm.0", "fc_norm.1", "fc_norm.2")


def findings(
    tmp_path: Path, make: Make, engine: ServedBy, algorithm: str | None = None, target: dict[str, Any] | None = None
) -> tuple[Finding, ...]:
    # vLLM guesses the method from the path, so the path says it, as it does in every directory of a hub.
    draft = make(tmp_path / "a-target-eagle3")
    return check(str(draft), str(checkpoints.target(tmp_path / "target", **(target or {}))), engine=engine, algorithm=algorithm)


LATENT = {"q_lora_rank": 6, "kv_lora_rank": 5, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 3}


def latent() -> Tensors:
    """A drafter with multi-head latent attention, as those for Kimi are."""
    attention = {
        "q_a_proj": (6, 2 * HIDDEN),
        "q_a_layernorm": (6,),
        "q_b_proj": (2 * 6, 6),
        "kv_a_proj_with_mqa": (7, 2 * HIDDEN),
        "kv_a_layernorm": (5,),
        "kv_b_proj": (2 * 7, 5),
        "o_proj": (HIDDEN, 2 * 3),
    }
    rest = {n: t for n, t in weights("layers.0").items() if ".self_attn." not in n}
    return {**rest, **{f"layers.0.self_attn.{n}.weight": plain(*shape) for n, shape in attention.items()}}


WHOLE = {
    "lm_head.weight": plain(VOCABULARY, HIDDEN),
    "d2t": integers([0] * VOCABULARY),
    "t2d": truths(tuple(range(VOCABULARY))),
}
"""What a drafter has that drafts all ids."""

CONSISTENT: dict[str, tuple[Make, ServedBy, dict[str, Any]]] = {
    "sglang, no layers named": (sglang(), "sglang", {}),
    "sglang, output layers": (sglang(eagle_config={IDS: [1, 29, 57]}), "sglang", {}),
    "sglang, own choice of layers": (sglang(eagle_config={IDS: [9, 29, 49]}), "sglang", {}),
    "sglang, layers.0 and a prefix that it takes off": (
        sglang({f"model.{n}" if n not in ("lm_head.weight", "d2t", "t2d") else n: t for n, t in weights("layers.0").items()}),
        "sglang",
        {},
    ),
    "sglang, EAGLE-3.1 norms": (
        sglang({**latent(), **FC_NORMS}, architectures=["Eagle3DeepseekV2ForCausalLM"], fc_norm=True, norm_output=True, **LATENT),
        "sglang",
        {},
    ),
    "sglang, older names of the norms": (
        sglang(changed(norms("aux_norm_low", "aux_norm_mid", "aux_norm_high")), use_aux_norm=True),
        "sglang",
        {},
    ),
    "sglang, Kimi": (
        sglang(latent(), architectures=["Eagle3DeepseekV2ForCausalLM"], eagle_config={IDS: [2, 30, 58]}, **LATENT),
        "sglang",
        {"architecture": "KimiK25ForConditionalGeneration"},
    ),
    "sglang, shared head of full size": (
        sglang(changed({"lm_head.weight": None, "d2t": None, "t2d": None}), draft_vocab_size=None),
        "sglang",
        {},
    ),
    "vllm, input layers": (vllm(), "vllm", {}),
    "sglang, a map of all ids": (sglang(changed(WHOLE), draft_vocab_size=VOCABULARY), "sglang", {}),
    "vllm, all ids and no map": (
        vllm(changed({**WHOLE, "d2t": None, "t2d": None}, "layers.0"), draft_vocab_size=VOCABULARY),
        "vllm",
        {},
    ),
    "vllm, own choice of layers": (vllm(eagle_aux_hidden_state_layer_ids=[10, 30, 50]), "vllm", {}),
    "vllm, residual before the norm": (vllm(norm_before_residual=True), "vllm", {}),
    "vllm, sglang's file without layers": (sglang(), "vllm", {}),
    "speculators": (speculators(), "vllm", {}),
    "what a trainer keeps for itself": (sglang(changed(norms("verifier_norm"))), "sglang", {}),
    "speculators, normalised before fc": (
        speculators(changed(norms("input_norm", width=3 * HIDDEN), "layers.0"), norm_before_fc=True),
        "vllm",
        {},
    ),
    "an embedding of its own that equals the target's": (
        sglang(changed({"embed_tokens.weight": plain(VOCABULARY, HIDDEN, value=3)})),
        "sglang",
        {},
    ),
}


@pytest.mark.parametrize("case", CONSISTENT)
def test_a_pair_that_fits_has_no_finding(tmp_path: Path, case: str) -> None:
    make, engine, target = CONSISTENT[case]
    assert [(f.code, f.title) for f in findings(tmp_path, make, engine, target=target)] == []


FAULTS: dict[str, tuple[str, str, Make, ServedBy, dict[str, Any]]] = {
    "output layers, read as input layers": (
        "GPD602",
        "1, 29, 57",
        vllm(eagle_config={IDS: [1, 29, 57]}, eagle_aux_hidden_state_layer_ids=None),
        "vllm",
        {},
    ),
    "layers where SGLang does not look": (
        "GPD602",
        "trained on 10, 30, 50",
        sglang(eagle_aux_hidden_state_layer_ids=[10, 30, 50]),
        "sglang",
        {},
    ),
    "input layers where output layers stand": (
        "GPD602",
        "layers 3, 31, 59",
        sglang(eagle_config={IDS: [2, 30, 58]}),
        "sglang",
        {},
    ),
    "a deeper target's layers": ("GPD602", "that has 61", sglang(eagle_config={IDS: [1, 39, 77]}), "sglang", {}),
    "a wider target": ("GPD602", "numbers a token", sglang(changed({"fc.weight": plain(HIDDEN, 3 * HIDDEN + 3)})), "sglang", {}),
    "absolute ids": ("GPD603", "offsets", sglang(changed({"d2t": integers(list(ROWS))})), "sglang", {}),
    "no map": ("GPD603", "no map d2t", sglang(changed({"d2t": None})), "vllm", {}),
    "maps that disagree": ("GPD603", "disagree", sglang(changed({"t2d": truths(ROWS[:-1])})), "sglang", {}),
    "a map of floats": ("GPD603", "whole numbers", sglang(changed({"d2t": plain(DRAFTED)})), "vllm", {}),
    "a map of another length": ("GPD603", "entries", sglang(changed({"d2t": integers([0] * 7)})), "vllm", {}),
    "a map of all ids": (
        "GPD603",
        "vLLM does not load it",
        vllm(changed(WHOLE, "layers.0"), draft_vocab_size=VOCABULARY),
        "vllm",
        {},
    ),
    "another tokenizer": ("GPD603", "vocabulary of 101", sglang(vocab_size=VOCABULARY + 1), "sglang", {}),
    "a prefix that vLLM refuses": (
        "GPD605",
        "no place in vLLM",
        vllm({f"model.{n}": t for n, t in weights("layers.0").items()}),
        "vllm",
        {},
    ),
    "a prefix that SGLang drops": (
        "GPD605",
        "no place in SGLang",
        sglang({f"module.{n}": t for n, t in weights().items()}),
        "sglang",
        {},
    ),
    "a part left out": (
        "GPD605",
        "lacks layers.0.hidden_norm",
        sglang(changed({"midlayer.hidden_norm.weight": None})),
        "sglang",
        {},
    ),
    "no head of its own": ("GPD605", "lacks lm_head", sglang(changed({"lm_head.weight": None})), "sglang", {}),
    "biases that SGLang has no place for": (
        "GPD605",
        "no place in SGLang",
        sglang(changed({"midlayer.self_attn.q_proj.bias": plain(8)}), attention_bias=True),
        "sglang",
        {},
    ),
    "a bias that vLLM leaves out": (
        "GPD605",
        "without a word",
        vllm(changed({"layers.0.self_attn.q_proj.bias": plain(8)}, "layers.0")),
        "vllm",
        {},
    ),
    "what a trainer keeps for itself": (
        "GPD605",
        "There is no module",
        vllm(changed(norms("verifier_norm"), "layers.0")),
        "vllm",
        {},
    ),
    "a head that vLLM would borrow": (
        "GPD605",
        "vLLM takes the target's",
        vllm(changed({"lm_head.weight": None}, "layers.0")),
        "vllm",
        {},
    ),
    "norms that vLLM refuses": ("GPD608", "vLLM refuses the file", vllm(changed(FC_NORMS, "layers.0")), "vllm", {}),
    "another size than its configuration": ("GPD605", "another shape", sglang(intermediate_size=16), "vllm", {}),
    "a form that SGLang cannot load": ("GPD605", "no class", speculators(), "sglang", {}),
    "feedback flag out of sight": ("GPD608", "does not look", sglang(eagle_config={"norm_output": True}), "sglang", {}),
    "a residual that SGLang does not know": ("GPD608", "norm_before_residual", sglang(norm_before_residual=True), "sglang", {}),
    "norms that nobody switched on": (
        "GPD608",
        "does not switch it on",
        sglang(changed(FC_NORMS)),
        "sglang",
        {},
    ),
    "norms without weights": ("GPD608", "multiplies by ones", vllm(norm_before_fc=True), "vllm", {}),
    "a default that vLLM turns round": ("GPD608", "does not say", speculators(norm_before_residual=None), "vllm", {}),
    "SpecForge's other meaning": ("GPD608", "SpecForge", sglang(changed(FC_NORMS), fc_norm=True, norm_output=True), "sglang", {}),
    "short texts": ("GPD609", "has 512 positions", sglang(max_position_embeddings=512), "vllm", {}),
    "another embedding": (
        "GPD610",
        "differs",
        sglang(changed({"embed_tokens.weight": plain(VOCABULARY, HIDDEN, value=4)})),
        "vllm",
        {},
    ),
    "a drafter of another family": (
        "GPD606",
        "made for LlamaForCausalLM",
        speculators(),
        "vllm",
        {"architecture": "Qwen3ForCausalLM"},
    ),
    "a quantised target": ("GPD611", "quantised", sglang(), "sglang", {"quantization_config": {"quant_method": "fp8"}}),
}


@pytest.mark.parametrize("case", FAULTS)
def test_each_fault_has_its_code_and_no_other(tmp_path: Path, case: str) -> None:
    code, words, make, engine, target = FAULTS[case]
    found = findings(tmp_path, make, engine, target=target)
    assert {f.code for f in found} == {code}, [(f.code, f.title) for f in found]
    assert any(words in f.title for f in found), [f.title for f in found]


@pytest.mark.parametrize(
    ("verifier", "called", "fires"),
    [
        ("moonshotai/Kimi-K2-Instruct", "Kimi-K2.5", True),
        ("moonshotai/Kimi-K2.5", "Kimi-K2.5", False),
        ("moonshotai/Kimi-K2.5", "kimi-k2.5-NVFP4", False),
        ("moonshotai/Kimi-K2.5", "target", False),
        ("moonshotai/Kimi-K2.5", "models--moonshotai--Kimi-K2.5/snapshots/abc", False),
        ("moonshotai/Kimi-K2-Instruct", "models--moonshotai--Kimi-K2.5/snapshots/abc", True),
    ],
)
def test_the_target_that_a_drafter_names(tmp_path: Path, verifier: str, called: str, fires: bool) -> None:
    target = checkpoints.target(tmp_path / called)
    place = {"algorithm": "eagle3", "verifier": {"name_or_path": verifier, "architectures": ["LlamaForCausalLM"]}}
    draft = checkpoints.speculators(tmp_path / "eagle3", speculators_config=place)
    assert [(f.code, f.severity) for f in check(str(draft), str(target), engine="vllm")] == [("GPD606", "info")] * fires


def test_a_drafter_served_as_another_algorithm(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, sglang(), "sglang", algorithm="EAGLE")
    assert (found.code, found.severity) == ("GPD604", "error")


def test_the_length_that_is_served_counts(tmp_path: Path) -> None:
    from gpudiag.drafter.check import read, results
    from gpudiag.model.facts import Asked

    target = str(checkpoints.target(tmp_path / "target", max_position_embeddings=10 * POSITIONS))
    draft = str(checkpoints.drafter(tmp_path / "eagle3"))

    def status(context: int | None) -> str:
        asked = Asked(engine="vllm", model=target, draft=draft, context=context)
        return next(r.status for r in results(read(asked)) if r.info.code == "GPD609")

    assert [status(None), status(POSITIONS), status(POSITIONS + 1)] == ["finding", "ok", "finding"]


def test_tags_outside_the_draft_vocabulary_are_a_note_and_the_end_is_not(tmp_path: Path) -> None:
    target = checkpoints.target(tmp_path / "target", eos_token_id=1)
    (target / "tokenizer.json").write_text(
        json.dumps({"added_tokens": [{"id": i, "content": c} for i, c in ((1, "<|im_end|>"), (5, "</think>"), (7, "<think>"))]})
    )
    (target / "chat_template.jinja").write_text("{{ '<think>' }}{{ '</think>' }}{{ '<|im_end|>' }}")
    (found,) = check(str(checkpoints.drafter(tmp_path / "eagle3")), str(target), engine="vllm")
    assert (found.code, found.severity) == ("GPD603", "info")
    assert "1 token that the target writes by its template: <think>" in found.title


@pytest.mark.parametrize(
    "header",
    [
        b'{"fc.weight": null}',
        b'{"fc.weight": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"fc.weight": {"dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 4]}}',
        b'{"fc.weight": {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]}}',
        b'{"fc.weight": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
        b"[" * 200_000,
        b"\xff",
    ],
)
def test_a_hostile_header_is_unreadable_and_no_crash(tmp_path: Path, header: bytes) -> None:
    draft = checkpoints.drafter(tmp_path / "eagle3")
    (draft / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert findings_of(draft, tmp_path) == {"unknown"}


def findings_of(draft: Path, tmp_path: Path) -> set[str]:
    """How the checks that need the drafter's files end."""
    from gpudiag.drafter.check import read, results
    from gpudiag.model.facts import Asked

    asked = Asked(engine="sglang", model=str(checkpoints.target(tmp_path / "target")), draft=str(draft))
    return {r.status for r in results(read(asked)) if r.info.code != "GPD123"}
