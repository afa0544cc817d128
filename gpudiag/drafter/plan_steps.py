"""The commands that train a drafter, each trainer in an environment of its own.

Options as in the wheels specforge 0.2.0 and speculators 0.9.0 and in their repositories (SpecForge a6b6b02 scripts/,
examples/configs; speculators c05b95b scripts/launch_vllm.py). Both pin other versions of torch, transformers and the engines
than a serving environment has, and than each other.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import Final

from msgspec import Struct

from gpudiag.drafter.plan_numbers import Target, Work
from gpudiag.model.training_plan import Step, Trainer

VERSIONS: Final[dict[Trainer, str]] = {"specforge": "0.2.0", "speculators": "0.9.0"}
_TEMPLATES: Final = (
    ("kimi", "kimi-k2-instruct"),
    ("deepseek_v3", "deepseek-v3"),
    ("deepseek", "deepseek-v2"),
    ("gpt_oss", "gpt-oss"),
    ("qwen3_5", "qwen3.5"),
    ("qwen3", "qwen3-instruct"),
    ("qwen", "qwen"),
    ("llama4", "llama4"),
    ("llama", "llama3"),
    ("gemma", "gemma"),
    ("phi", "phi4"),
)
"""SpecForge's templates by the target's model_type; for thinking models it has others of the same name."""


class Recipe(Struct, frozen=True, kw_only=True):
    """What the commands are about. `data` are the prompts, `place` a directory for everything that is made."""

    target: Target
    work: Work
    layers: tuple[int, ...]
    data: str
    place: str
    reasoning: bool
    draft_config: str
    tp: int = 1
    """GPUs that one copy of the target takes."""


def command(*parts: str) -> tuple[str]:
    """One line."""
    return (" ".join(parts),)


def steps(trainer: Trainer, recipe: Recipe) -> tuple[Step, ...]:
    """Every step from prompts to a drafter that is checked."""
    return _specforge(recipe) if trainer == "specforge" else _speculators(recipe)


def _specforge(r: Recipe) -> tuple[Step, ...]:
    answers, states = f"{shlex.quote(r.place)}/answers.jsonl", f"{shlex.quote(r.place)}/hidden_states"
    return (*_specforge_data(r, answers), *_specforge_states(r, answers, states), *_specforge_training(r, states))


def _specforge_data(r: Recipe, answers: str) -> tuple[Step, ...]:
    q, outputs = shlex.quote, [i - 1 for i in r.layers]
    return (
        Step(
            title="an environment of its own (it brings sglang 0.5.14 and torch 2.11), with the scripts beside it",
            where="anywhere",
            lines=(
                "python3 -m venv specforge-env && specforge-env/bin/pip install specforge==0.2.0",
                "git clone https://github.com/sgl-project/SpecForge && git -C SpecForge checkout a6b6b02",
            ),
        ),
        Step(
            title=f"the drafter's configuration, {q(r.draft_config)}: sizes of the target, and these layers",
            where="by hand, from one of SpecForge/configs",
            lines=(
                json.dumps({"eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": outputs}}),
                f'"hidden_size": {r.target.hidden_size}, "vocab_size": {r.target.vocab_size},',
                f'"draft_vocab_size": {r.work.draft_vocab_size}, "max_position_embeddings": {r.work.length}',
            ),
        ),
        Step(
            title="answers by the target itself, from a running SGLang server",
            where="SpecForge, specforge-env",
            lines=command(
                f"python scripts/regenerate_train_data.py --model {q(r.target.path)} --server-address localhost:30000",
                f"--input-file-path {q(r.data)} --output-file-path {answers}",
                f"--max-tokens {r.work.length} --reasoning {'save' if r.reasoning else 'none'} --resume",
            ),
        ),
        _audit_data(r, answers),
    )


def _specforge_states(r: Recipe, answers: str, states: str) -> tuple[Step, ...]:
    q, template = shlex.quote, template_of(r.target.model_type)
    return (
        Step(
            title="hidden states",
            where="SpecForge, specforge-env; the server of the step before may stop",
            lines=command(
                f"torchrun --standalone --nproc_per_node {r.work.gpus} scripts/prepare_hidden_states.py --strategy eagle3",
                f"--target-model-path {q(r.target.path)} --draft-model-config {q(r.draft_config)} --data-path {answers}",
                f"--output-path {states} --chat-template {template} --max-length {r.work.length} --tp-size {r.tp}",
            ),
        ),
        _audit_states(r, states),
    )


def _specforge_training(r: Recipe, states: str) -> tuple[Step, ...]:
    q, place = shlex.quote, shlex.quote(r.place)
    mapping = f"{states}/vocab_mapping/vocab_mapping.pt"
    return (
        Step(
            title="training",
            where="SpecForge, specforge-env",
            lines=command(
                "specforge train --config examples/configs/llama3.1-8b-eagle3-offline.yaml",
                f"model.target_model_path={q(r.target.path)} model.draft_model_config={q(r.draft_config)}",
                f"model.vocab_mapping_path={mapping} data.hidden_states_path={states}",
                f"data.max_length={r.work.length} data.chat_template={template_of(r.target.model_type)}",
                f"training.num_epochs={r.work.epochs} training.ttt_length={r.work.ttt_steps}",
                f"deployment.trainer.nproc_per_node={r.work.gpus} output_dir={place}/out",
            ),
        ),
        Step(
            title="the drafter as a directory that SGLang serves",
            where="SpecForge, specforge-env",
            lines=command(
                f"specforge export --to sglang --checkpoint {place}/out/CHECKPOINT --draft-config {q(r.draft_config)}",
                f"--vocab-mapping {mapping} --output-dir {place}/drafter",
            ),
        ),
        _check(r, f"{place}/drafter", "sglang"),
    )


def _speculators(r: Recipe) -> tuple[Step, ...]:
    place = shlex.quote(r.place)
    prepared, states = f"{place}/prepared", f"{place}/hidden_states"
    return (
        *_speculators_data(r, f"{place}/answers.jsonl", prepared),
        *_speculators_states(r, prepared, states),
        *_speculators_training(r, prepared, states),
    )


def _speculators_data(r: Recipe, answers: str, prepared: str) -> tuple[Step, ...]:
    q = shlex.quote
    return (
        Step(
            title="an environment of its own for the trainer; vLLM stays in the server's",
            where="anywhere",
            lines=("python3 -m venv speculators-env && speculators-env/bin/pip install speculators==0.9.0",),
        ),
        Step(
            title="answers by the target itself, from a running vLLM server",
            where="speculators-env",
            lines=command(
                f"speculators regenerate-responses --endpoint http://localhost:8000/v1/chat/completions --dataset {q(r.data)}",
                f"--max-tokens {r.work.length} --outfile {answers} --resume",
            ),
        ),
        _audit_data(r, answers),
        Step(
            title="tokens and loss masks, with the template of that server",
            where="speculators-env; the server still runs",
            lines=command(
                f"speculators prepare-data --model {q(r.target.path)} --data {answers} --output {prepared}",
                f"--seq-length {r.work.length} --render-endpoint http://localhost:8000 --no-skip-token-freq",
            ),
        ),
    )


def _speculators_states(r: Recipe, prepared: str, states: str) -> tuple[Step, ...]:
    """The server's options are those that the repository's scripts/launch_vllm.py passes."""
    q = shlex.quote
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [*r.layers, r.target.layers]}},
    }
    transfer = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": os.path.abspath(f"{r.place}/shared")},
    }
    return (
        Step(
            title="a server that writes hidden states, in place of the first",
            where="the environment of vLLM",
            lines=command(
                f"vllm serve {q(r.target.path)} --tensor-parallel-size {r.tp}",
                f"--data-parallel-size {max(1, r.work.gpus // r.tp)} --speculative-config {q(json.dumps(speculative))}",
                f"--kv-transfer-config {q(json.dumps(transfer))}",
            ),
        ),
        Step(
            title="hidden states",
            where="speculators-env, with a view of the server's disk",
            lines=command(
                f"speculators generate-offline-data --preprocessed-data {prepared} --output {states}",
                "--endpoint http://localhost:8000/v1 --concurrency 32 --validate-outputs",
            ),
        ),
        _audit_states(r, states),
    )


def _speculators_training(r: Recipe, prepared: str, states: str) -> tuple[Step, ...]:
    place, ids = shlex.quote(r.place), " ".join(map(str, r.layers))
    return (
        Step(
            title="training, once the server has stopped",
            where="speculators-env",
            lines=command(
                f"torchrun --standalone --nproc_per_node {r.work.gpus} -m speculators.train --speculator-type eagle3",
                f"--verifier-name-or-path {shlex.quote(r.target.path)} --data-path {prepared} --hidden-states-path {states}",
                f"--save-path {place}/out --draft-vocab-size {r.work.draft_vocab_size} --target-layer-ids {ids}",
                f"--epochs {r.work.epochs} --ttt-steps {r.work.ttt_steps}",
                f"--total-seq-len {r.work.length} --lr 1e-4 --on-missing raise",
            ),
        ),
        _check(r, f"{place}/out/CHECKPOINT", "vllm"),
    )


def _audit_data(r: Recipe, answers: str) -> Step:
    line = f"gpudiag drafter audit-data {answers} --target {shlex.quote(r.target.path)} --python SERVER/bin/python"
    return Step(title="are the answers whole?", where="here", lines=(line,))


def _audit_states(r: Recipe, states: str) -> Step:
    line = f"gpudiag drafter audit-states {states} --target {shlex.quote(r.target.path)} --tokens {r.work.tokens}"
    return Step(title="are the states whole? Also while they are being written", where="here", lines=(line,))


def _check(r: Recipe, drafter: str, engine: str) -> Step:
    line = f"gpudiag drafter check {drafter} --target {shlex.quote(r.target.path)} --engine {engine} --python SERVER/bin/python"
    return Step(title="does it fit the engine that will serve it?", where="here", lines=(line,))


def template_of(model_type: str | None) -> str:
    """SpecForge's template for this kind of model; NAME where it has none that would be right."""
    known = (model_type or "").lower()
    return next((template for prefix, template in _TEMPLATES if known.startswith(prefix)), "NAME")
