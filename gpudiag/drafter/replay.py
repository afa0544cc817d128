"""A drafter's replay: texts in, acceptance of every way of serving out, compared with what the server measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from gpudiag.doctor import drafter_files, model_files
from gpudiag.drafter import contexts, fit, splits, torch_child, walk
from gpudiag.drafter.fit import Measured, Table
from gpudiag.drafter.hypotheses import Hypothesis, hypotheses, shorter_views
from gpudiag.errors import NotInspectableError, UsageError
from gpudiag.model.replay import AS_TRAINED, DraftCounts, Replay, Text
from gpudiag.rules.drafter.aux_layers import learned

GREEDY: Final = 0.97
"""Share of the server's tokens that are the target's own first choice, from which on they count as chosen so. Sampled text has
less; two implementations in bfloat16 agree on more."""


class Order(Struct, frozen=True, kw_only=True):
    """What to replay and how. `layers` overrides what the drafter's files say of the layers it learnt on (capture indices)."""

    draft: str
    target: str
    steps: int
    topk: int = 1
    draft_tokens: int | None = None
    window: int | None = None
    """Tokens that the server has the drafter attend to at most; None: all."""
    layers: tuple[int, ...] | None = None
    device: str = "auto"
    dtype: str | None = None
    healthy_only: bool = False
    """Leave the faults out: a replay in a twentieth of the time."""


def replay(
    order: Order,
    texts: Sequence[Text],
    *,
    python: str,
    progress: torch_child.Progress,
    counted: Measured | None = None,
) -> Replay:
    """Replay the texts. `counted` is what the server counted where the texts carry no record of their own.

    Raises UsageError or NotInspectableError for files that cannot be replayed.
    """
    began = time.monotonic()
    known = _known(order)
    views = () if order.healthy_only else shorter_views(max((len(t.ids) for t in texts), default=0), order.window)
    nodes = (order.draft_tokens or order.steps + 1) - 1
    answer = torch_child.run(_request(order, texts, (*known, *views), nodes), python=python, progress=progress)
    rows = answer["tables"]
    words = {name: [row[name] for row in rows] for name in rows[0]}
    if AS_TRAINED not in words:
        learnt = ", ".join(map(str, known[0].layers or ()))
        raise UsageError(f"the target has no layers {learnt} to feed the drafter", help="--layers names those it learnt on")
    tables = _distinct(fit.grouped(words, known))
    same, of = (sum(column) for column in zip(*answer["own_choice"], strict=True))
    own_choice = same / of if of else 1.0
    greedy = own_choice >= GREEDY
    seen = counted or fit.measured(texts, order.steps)
    healthy = next(t for t in tables if t.hypothesis.name == AS_TRAINED)
    parts = fit.by_text(healthy.words[0], texts, order.steps, greedy=greedy)
    low, high = walk.interval(parts)
    return Replay(
        draft=order.draft,
        target=order.target,
        texts=len(texts),
        tokens=sum(len(t.answer) for t in texts),
        steps=order.steps,
        topk=order.topk,
        draft_tokens=nodes + 1,
        window=order.window,
        learnt_layers=tuple(known[0].layers or ()),
        covered=answer["covered"],
        own_choice=own_choice,
        replayed=walk.total(parts, order.steps),
        low=low,
        high=high,
        measured=seen.total if seen else None,
        measured_from=seen.source if seen else "nothing",
        candidates=fit.candidates(tables, texts, order.steps, seen, greedy=greedy),
        contexts=contexts.compare(views, words, texts, order.steps, greedy=greedy),
        sections=splits.split(healthy.words[0], texts, order.steps, greedy=greedy, closing=splits.closing_ids(order.target)),
        dtype=str(answer["dtype"]),
        device=str(answer["device"]),
        took_s=time.monotonic() - began,
    )


def _known(order: Order) -> tuple[Hypothesis, ...]:
    """The hypotheses for this pair, the first with its layers written out."""
    try:
        drafter = drafter_files.drafter(order.draft, None)
        target = model_files.config(Path(order.target))
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}", help="a directory with config.json and .safetensors") from None
    except ValueError as error:
        raise NotInspectableError(str(error)[:300], help=f"gpudiag drafter check {order.draft} --target {order.target}") from None
    if not target.layers:
        raise NotInspectableError(
            f"{order.target}/config.json does not say how many layers the model has",
            help=f"python3 -m json.tool {order.target}/config.json",
        )
    config = drafter.config
    learnt = order.layers or learned(drafter, target.layers).layers
    # vLLM takes a speculators file without the flag as if it were set.
    normed = config.norm_before_residual if config.norm_before_residual is not None else config.speculators
    known = hypotheses(target.layers, learnt, post_norm=bool(config.norm_output), residual_normed=normed)
    first = msgspec.structs.replace(known[0], layers=learnt)
    return (first,) if order.healthy_only else (first, *known[1:])


def _request(order: Order, texts: Sequence[Text], known: tuple[Hypothesis, ...], nodes: int) -> dict[str, object]:
    return {
        "verb": "replay",
        "target": torch_child.absolute(order.target),
        "draft": torch_child.absolute(order.draft),
        "device": order.device,
        "dtype": order.dtype,
        "steps": order.steps,
        "topk": order.topk,
        "nodes": nodes,
        "window": order.window,
        "learnt": known[0].layers,
        "hypotheses": msgspec.to_builtins(known),
        "sequences": [{"ids": t.ids, "prompt": t.prompt} for t in texts],
    }


def _distinct(tables: list[Table]) -> list[Table]:
    """Without those that change nothing in these texts: where they and the drafter as trained are one, nothing is at fault."""
    healthy = next(t for t in tables if t.hypothesis.name == AS_TRAINED)
    return [t for t in tables if t is healthy or any(words != healthy.words[0] for words in t.words)]


def given(rounds: int, survival: Sequence[float]) -> Measured:
    """What a person read off a server: rounds, and the share of them in which each position was accepted."""
    return Measured(total=DraftCounts(rounds=rounds, at=tuple(round(s * rounds) for s in survival)), source="given")
