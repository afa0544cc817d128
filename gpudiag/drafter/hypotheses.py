"""The ways in which an integration is known to serve a drafter other than it was trained.

Each is a change of one thing, in terms that torchside/eagle3/variants.py makes real. Where they come from: the layer tables of
rules/drafter/aux_layers.py (SGLang 0.5.23, vLLM 0.32-0.33); vLLM pull requests 50170 (layers) and 35966; d2t is an offset in
both engines; SpecForge 0.2.0 calls by norm_output something else than the engines do; SGLang's loader drops unknown names.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Struct, UnsetType

from gpudiag.model.replay import AS_TRAINED

DRAWS: Final = 3
"""Random tensors that stand for one that is not known: enough to tell what every one of them predicts from what one does."""

WINDOWS: Final = (192, 768, 3072)
"""Tokens. What a drafter attends to at most, to see whether more does it harm: within what drafters are trained on."""


class Hypothesis(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to serve. Fields that are not set are as the drafter's files say. `prior` is in nats below 'as trained'."""

    name: str
    kind: str
    says: str
    prior: float
    group: str = ""
    """Hypotheses of one group are draws of the same unknown tensor."""
    layers: tuple[int, ...] | UnsetType = UNSET
    shift: int | UnsetType = UNSET
    d2t: str | UnsetType = UNSET
    skip: tuple[str, ...] | UnsetType = UNSET
    ones: tuple[str, ...] | UnsetType = UNSET
    random: tuple[str, ...] | UnsetType = UNSET
    feedback: str | UnsetType = UNSET
    residual: str | UnsetType = UNSET
    embedding: str | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    window: int | UnsetType = UNSET
    """How many of the last tokens the drafter attends to, where that is not the server's number (see shorter_views)."""


def hypotheses(layers: int, learnt: tuple[int, ...], *, post_norm: bool, residual_normed: bool) -> tuple[Hypothesis, ...]:
    """All of them for a target with so many layers and a drafter that learnt on `learnt` (capture indices)."""
    return (
        Hypothesis(name=AS_TRAINED, kind="as-trained", says="served as it was trained", prior=0.0),
        *_layers(layers, learnt),
        *_pairing(),
        *_vocabulary(),
        Hypothesis(
            name="feedback pre-norm" if post_norm else "feedback post-norm",
            kind="feedback",
            says=f"the hidden state fed back is the one {'before' if post_norm else 'after'} the final norm",
            prior=3.0,
            feedback="pre-norm" if post_norm else "post-norm",
        ),
        Hypothesis(
            name="residual before norm" if residual_normed else "residual after norm",
            kind="residual",
            says=f"the residual is taken {'before' if residual_normed else 'after'} hidden_norm",
            prior=4.0,
            residual="raw" if residual_normed else "normed",
        ),
        *_norms(),
        *_tensors(),
    )


def _layers(count: int, learnt: tuple[int, ...]) -> list[Hypothesis]:
    """Other layers that an engine may feed: its reading of the list by one more or less, its default, an order, the last."""
    n = len(learnt)
    named = {
        "one layer early": tuple(i - 1 for i in learnt),
        "one layer late": tuple(i + 1 for i in learnt),
        "the engine's default": (2, count // 2, count - 3) if n == 3 else (),
        "the last layers": tuple(range(count - n + 1, count + 1)),
        "the last layer only": (count,) * n,
        "layers in reverse": tuple(reversed(learnt)),
        "layers in ascending order": tuple(sorted(learnt)),
        "the first layers": tuple(range(n)),
    }
    found: dict[tuple[int, ...], Hypothesis] = {}
    for name, chosen in named.items():
        if chosen and chosen != learnt and min(chosen) >= 0 and max(chosen) <= count and chosen not in found:
            found[chosen] = Hypothesis(
                name=name,
                kind="layers",
                says=f"it is fed the inputs of layers {', '.join(map(str, chosen))} ({name})",
                prior=3.0,
                layers=chosen,
            )
    return list(found.values())


def _pairing() -> list[Hypothesis]:
    return [
        Hypothesis(
            name="token not shifted",
            kind="shift",
            says="each hidden state is paired with the token that made it, not with the one after it",
            prior=5.0,
            shift=0,
        ),
        Hypothesis(
            name="hidden state one late",
            kind="shift",
            says="each token is paired with the hidden state before the right one",
            prior=5.0,
            shift=2,
        ),
    ]


def _vocabulary() -> list[Hypothesis]:
    return [
        Hypothesis(
            name="d2t absolute",
            kind="vocabulary",
            says="d2t holds target ids where the engine reads offsets",
            prior=3.0,
            d2t="absolute",
        ),
        Hypothesis(
            name="d2t read as absolute",
            kind="vocabulary",
            says="d2t holds offsets where target ids are read",
            prior=3.5,
            d2t="offsets",
        ),
        Hypothesis(
            name="d2t missing",
            kind="vocabulary",
            says="draft ids are taken for target ids: d2t is not loaded",
            prior=4.0,
            d2t="none",
        ),
    ]


def _norms() -> list[Hypothesis]:
    known = {
        "hidden_norm": "layers.0.hidden_norm",
        "input_layernorm": "layers.0.input_layernorm",
        "norm": "norm",
    }
    left_out = [
        Hypothesis(name=f"{short} left out", kind="norm", says=f"{short} is not applied", prior=4.5, skip=(name,))
        for short, name in known.items()
    ]
    unloaded = [
        Hypothesis(
            name=f"{short} not loaded",
            kind="weights",
            says=f"the weight of {short} is all ones: it was not loaded",
            prior=4.5,
            ones=(name,),
        )
        for short, name in known.items()
    ]
    return left_out + unloaded


def _tensors() -> list[Hypothesis]:
    fixed = [
        Hypothesis(
            name="target's embedding", kind="embedding", says="it uses the target's embedding", prior=3.5, embedding="target"
        ),
        Hypothesis(
            name="own embedding", kind="embedding", says="it uses the embedding in its own file", prior=3.5, embedding="own"
        ),
        Hypothesis(name="embedding of zeros", kind="embedding", says="its embedding is all zeros", prior=5.0, embedding="zero"),
    ]
    # Memory that no file filled, or rows of another vocabulary's order: the two are accepted quite differently.
    drawn = [
        Hypothesis(
            name=f"another embedding, {how} #{seed}",
            group="another embedding",
            kind="embedding",
            says="it uses an embedding that is neither its own nor the target's",
            prior=3.5,
            embedding=how,
            seed=seed,
        )
        for how in ("random", "shuffled")
        for seed in range(1, DRAWS + 1)
    ]
    for short, name in (("fc", "fc"), ("lm_head", "lm_head"), ("qkv", "layers.0.self_attn.v_proj")):
        drawn += [
            Hypothesis(
                name=f"{short} not loaded #{seed}",
                group=f"{short} not loaded",
                kind="weights",
                says=f"{'the attention weights were' if short == 'qkv' else f'{short} was'} not loaded",
                prior=4.0,
                random=(name,),
                seed=seed,
            )
            for seed in range(1, DRAWS + 1)
        ]
    return [*fixed, *drawn]


def shorter_views(longest: int, seen: int | None) -> tuple[Hypothesis, ...]:
    """Windows that the longest text (tokens) goes well beyond: no ways of serving, but a test of what a long context does.

    `seen` is the server's own window, which only a smaller one changes.
    """
    return tuple(
        Hypothesis(name=f"the last {w} tokens", kind="context", says=f"it sees the last {w} tokens", prior=0.0, window=w)
        for w in WINDOWS
        if longest >= 2 * w and (seen is None or w < seen)
    )
