"""A drafter served with one thing wrong: what a hypothesis of gpudiag asks for, made real."""

from __future__ import annotations

import torch


class Served:
    """How a hypothesis serves a drafter.

    `layers` are capture indices; `shift` is by how many tokens the drafter's input is ahead of the hidden state it is paired
    with (1 is right); `absolute` reads d2t as target ids made from offsets twice; `embedding` [V, H] is what is looked up;
    `window` is how many of the text's last tokens the drafter attends to, None for all.
    """

    def __init__(self, drafter, layers, shift, embedding, window=None):
        self.drafter, self.layers, self.shift, self.embedding, self.window = drafter, layers, shift, embedding, window


def served(drafter, target, hypothesis, window):
    """The drafter as this hypothesis (a JSON object, see gpudiag/drafter/hypotheses.py) says that it is served.

    `window` is that of the server, None for a drafter that attends to all of the text.
    """
    changed = drafter.copy()
    if "feedback" in hypothesis:
        changed.post_norm_feedback = hypothesis["feedback"] == "post-norm"
    if "residual" in hypothesis:
        changed.norm_before_residual = hypothesis["residual"] == "normed"
    changed.skipped = frozenset(hypothesis.get("skip", ()))
    for name in hypothesis.get("ones", ()):
        changed.weights[f"{name}.weight"] = torch.ones_like(changed.weights[f"{name}.weight"])
    for name in hypothesis.get("random", ()):
        changed.weights[f"{name}.weight"] = _random_like(changed.weights[f"{name}.weight"], hypothesis)
    _map(changed, hypothesis.get("d2t"))
    layers = hypothesis.get("layers")
    table = _embedding(drafter, target, hypothesis)
    return Served(changed, layers, hypothesis.get("shift", 1), table, hypothesis.get("window", window))


def applies(drafter, hypothesis):
    """Whether this drafter has what the hypothesis changes."""
    named = [f"{name}.weight" for key in ("skip", "ones", "random") for name in hypothesis.get(key, ())]
    if any(name not in drafter.weights for name in named):
        return False
    if hypothesis.get("d2t") and "d2t" not in drafter.weights:
        return False
    return not (hypothesis.get("embedding") == "own" and "embed_tokens.weight" not in drafter.weights)


def _map(drafter, how):
    """'absolute': the file holds target ids and the engine adds its offsets to them. 'offsets': the other way round."""
    if how is None:
        return
    d2t = drafter.weights["d2t"]
    places = torch.arange(d2t.shape[0], device=d2t.device)
    changed = {"absolute": d2t + places, "offsets": d2t - places, "none": torch.zeros_like(d2t)}
    drafter.weights["d2t"] = changed[how]


def _embedding(drafter, target, hypothesis):
    own = drafter.weights.get("embed_tokens.weight")
    which = hypothesis.get("embedding") or ("own" if own is not None else "target")
    table = own if which == "own" and own is not None else target.embedding
    if which == "zero":
        return torch.zeros_like(table)
    if which == "shuffled":
        return table[torch.randperm(len(table), generator=_generator(hypothesis)).to(table.device)]
    return _random_like(table, hypothesis) if which == "random" else table


def _generator(hypothesis):
    return torch.Generator().manual_seed(hypothesis.get("seed", 0))


def _random_like(tensor, hypothesis):
    """Another tensor of the same shape and spread: what stands in memory that no file filled, or in another file."""
    drawn = torch.randn(tensor.shape, generator=_generator(hypothesis), dtype=torch.float32)
    return (drawn * tensor.detach().float().std().cpu()).to(device=tensor.device, dtype=tensor.dtype)
