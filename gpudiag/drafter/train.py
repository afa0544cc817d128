"""Trains a small drafter on a server's own answers: the probe whether these texts are what a drafter lacks.

It is no trainer for production: SpecForge and speculators are. It holds the whole target in one process and its texts in memory,
and is right for tiny targets and for the question whether a few minutes on one's own traffic lift a drafter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from gpudiag.doctor import drafter_files, model_files
from gpudiag.drafter import torch_child
from gpudiag.errors import NotInspectableError, UsageError
from gpudiag.model.replay import Text, Trained
from gpudiag.rules.drafter.aux_layers import default, learned

Dialect = Literal["sglang", "vllm", "speculators"]

DIALECTS: Final[tuple[Dialect, ...]] = ("sglang", "vllm", "speculators")
DECAY: Final = 0.8
"""Weight of a step against the one before it (EAGLE, SpecForge; speculators takes 1.0)."""
_HELD_OUT: Final = 10
_SHAPE: Final = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "hidden_act",
    "bos_token_id",
    "eos_token_id",
)


class Plan(Struct, frozen=True, kw_only=True):
    """What to train and for how long. `start` None begins with random weights; `vocabulary` is the size of the draft vocabulary.

    `context` is the most tokens of a text that are read at a time; `unroll` how often the drafter runs on its own states.
    """

    target: str
    out: Path
    start: str | None = None
    dialects: tuple[Dialect, ...] = ("sglang", "vllm")
    steps: int
    limit_s: float | None = None
    batch: int = 8
    rate: float = 1e-3
    context: int = 2048
    unroll: int = 4
    vocabulary: int | None = None
    layers: tuple[int, ...] | None = None
    resume: bool = False
    save_every_s: float = 60.0
    device: str = "auto"
    dtype: str | None = None
    ranks: int | None = None
    seed: int = 1


def held_out(texts: Sequence[Text]) -> tuple[tuple[Text, ...], tuple[Text, ...]]:
    """What is learnt and what is kept back to judge by: each tenth text, none of them in the other part."""
    kept = tuple(texts[::_HELD_OUT]) if len(texts) >= _HELD_OUT else ()
    return tuple(t for i, t in enumerate(texts) if not kept or i % _HELD_OUT), kept


def train(plan: Plan, texts: Sequence[Text], *, python: str, progress: torch_child.Progress) -> Trained:
    """Train on the texts. Raises UsageError or NotInspectableError for what cannot be trained."""
    plan.out.mkdir(parents=True, exist_ok=True)
    if plan.resume and not (plan.out / "state.safetensors").exists():
        raise UsageError(f"{plan.out} holds no training to go on with", help="leave --resume out to begin one")
    directories: dict[str, str] = {dialect: str(plan.out.resolve() / f"{dialect}-eagle3") for dialect in plan.dialects}
    request = _request(plan, texts, directories)
    answer = torch_child.run(request, python=python, progress=progress)
    return Trained(
        steps=answer["steps"],
        tokens=answer["tokens"],
        took_s=answer["took_s"],
        rate=answer["rate"],
        loss=answer["loss"],
        accuracy=tuple(answer["accuracy"]),
        ranks=answer["ranks"],
        covered=answer["covered"],
        parameters=answer["parameters"],
        device=str(answer["device"]),
        drafters=directories,
    )


def _request(plan: Plan, texts: Sequence[Text], directories: dict[str, str]) -> dict[str, Any]:
    inner, architectures = _target(plan.target)
    count = inner.get("num_hidden_layers")
    size = inner.get("vocab_size")
    if not isinstance(count, int) or not isinstance(size, int):
        raise NotInspectableError(f"{plan.target}/config.json names no layers or no vocabulary", help=_look_at(plan.target))
    layers = plan.layers or _layers(plan.start, count)
    if max(layers) >= count or len(set(layers)) < len(layers):
        raise UsageError(
            f"the target has {count} layers, of which the drafter would read {', '.join(map(str, layers))}",
            help="--layers N,N,N names three different ones, from 0 on",
        )
    return {
        "verb": "train",
        "target": torch_child.absolute(plan.target),
        "start": torch_child.absolute(plan.start) if plan.start else None,
        "out": str(plan.out.resolve()),
        "dialects": directories,
        "device": plan.device,
        "dtype": plan.dtype,
        "ranks": plan.ranks,
        "resume": plan.resume,
        "steps": plan.steps,
        "limit_s": plan.limit_s,
        "save_every_s": plan.save_every_s,
        "batch": plan.batch,
        "rate": plan.rate,
        "decay": DECAY,
        "context": plan.context,
        "unroll": plan.unroll,
        "seed": plan.seed,
        "layers": layers,
        "shape": _shape(inner),
        "vocabulary": vocabulary(texts, size, plan.vocabulary or min(size, 32000)),
        "proposed": 3,
        "verifier_architectures": architectures,
        "sequences": [{"ids": t.ids, "prompt": t.prompt} for t in texts],
    }


def vocabulary(texts: Iterable[Text], size: int, most: int) -> list[int]:
    """The target ids that the drafter can draft: the most frequent in the answers, then the lowest. Raises UsageError."""
    counts = Counter(token for text in texts for token in text.answer)
    if counts and max(counts) >= size:
        raise UsageError(
            f"the texts have token {max(counts)}, the target's vocabulary is {size}",
            help="--target names the model that is served",
        )
    frequent = [token for token, _ in counts.most_common(most)]
    rest = (token for token in range(size) if token not in counts)
    return sorted([*frequent, *(token for token, _ in zip(rest, range(most - len(frequent)), strict=False))])


def _target(directory: str) -> tuple[dict[str, Any], list[str]]:
    try:
        whole = model_files.object_in(Path(directory, "config.json"))
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}", help="a directory with config.json and .safetensors") from None
    except ValueError as error:
        raise NotInspectableError(str(error)[:300], help=_look_at(directory)) from None
    return dict(model_files.language_part(whole)), list(model_files.texts(whole.get("architectures")))


def _layers(start: str | None, count: int) -> tuple[int, ...]:
    if start is None:
        return default(count)
    try:
        return learned(drafter_files.drafter(start, None), count).layers
    except OSError as error:
        raise UsageError(f"--from {start}: {error.filename}: {error.strerror}", help=f"ls -l {start}") from None
    except ValueError as error:
        raise NotInspectableError(str(error)[:300], help=f"gpudiag drafter check {start}") from None


def _look_at(directory: str) -> str:
    return f"python3 -m json.tool {directory}/config.json"


def _shape(target: dict[str, Any]) -> dict[str, Any]:
    """The drafter's layer has the shape of one of the target's."""
    shape = {key: target[key] for key in _SHAPE if target.get(key) is not None}
    heads = shape.get("num_attention_heads")
    if not model_files.number(heads) or not model_files.number(shape.get("hidden_size")):
        raise NotInspectableError(
            "the target's config.json names no attention heads or no width", help="python3 -m json.tool DIR/config.json"
        )
    shape.setdefault("num_key_value_heads", heads)
    shape.setdefault("head_dim", shape["hidden_size"] // heads)
    shape.setdefault("rms_norm_eps", 1e-6)
    shape.setdefault("intermediate_size", 4 * shape["hidden_size"])
    return shape
