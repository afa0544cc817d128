"""Which of a drafter's drafts a text confirms, from every place where a server could have started a round.

Feeding the text itself is exact for a chain: a draft is only looked at while all before it were right. Index i stands after the
hidden state of token i and the input of token i + 1; the first draft of a round that starts there is for token i + 2.
"""

from __future__ import annotations

import math

import torch
from torch.nn.functional import embedding

_CELLS = 1 << 26
"""Attention scores held at a time: 256 MB of float32."""


def ahead(x, by=1):
    """X [B, T, ...] with every entry `by` places earlier, zeros at the end."""
    if not by:
        return x
    moved = torch.zeros_like(x)
    moved[:, :-by] = x[:, by:]
    return moved


def steps(drafter, captured, embedded, following, count, window=None):
    """Logits of each step for all positions at once: yields [B, T, V_d].

    `embedded` [B, T, H] is the input of step 0 (right: token i + 1 at index i), `following` that of step 1 (token i + 2).

    Step j at index i sees the keys of step 0 up to i, and those of steps 1 to j at i alone: what a server's cache holds then.
    """
    hidden = drafter.start(captured)
    first, later = None, []
    positions = torch.arange(embedded.shape[1], device=embedded.device)
    for j in range(count):
        q, k, v, residual = drafter.project(embedded, hidden, positions + j)
        if first is None:
            first = (k, v)
        else:
            later.append((k, v))
        attended = attend(q, first, later, window)
        hidden, logits = drafter.finish(attended, residual)
        yield logits
        embedded, following = following, ahead(following)


def attend(q, first, later, window=None):
    """Attention [B, T, heads, D] of each index to `first` up to itself and to `later` at itself, in pieces of bounded size.

    `window`: to so many entries at most, the last ones, those of `later` among them.
    """
    batch, length, heads, _ = q.shape
    size = max(1, _CELLS // (batch * heads * length))
    return torch.cat([_rows(q, first, later, at, min(length, at + size), window) for at in range(0, length, size)], 1)


def _rows(q, first, later, start, end, window):
    """The rows from `start` to `end`: keys beyond them are in the future of all."""
    q = q[:, start:end]
    keys, values = first[0][:, :end], first[1][:, :end]
    scale = 1 / math.sqrt(q.shape[-1])
    places = torch.arange(end, device=q.device)
    unseen = out_of_sight(places, places[start:], window and window - len(later))
    scores = (torch.einsum("bthd,bshd->bhts", q, keys) * scale).masked_fill(unseen, -math.inf)
    own = [(q * key[:, start:end]).sum(-1).transpose(1, 2)[..., None] * scale for key, _ in later]
    weights = torch.cat([scores, *own], -1).float().softmax(-1).to(q.dtype)
    attended = torch.einsum("bhts,bshd->bthd", weights[..., :end], values)
    for n, (_, value) in enumerate(later):
        attended = attended + weights[..., end + n].transpose(1, 2)[..., None] * value[:, start:end]
    return attended


def out_of_sight(keys, queries, window):
    """Which keys a query does not attend to, [Q, K]: those after it, and those further back than the window."""
    unseen = keys[None, :] > queries[:, None]
    return unseen if window is None else unseen | (keys[None, :] <= queries[:, None] - window)


@torch.no_grad()
def accepted(served, captured, ids, count):
    """How many of `count` drafts the text confirms from each index, [B, T]; meaningful where i + 1 + count < T."""
    captured, embedded, following = inputs(served, captured, ids)
    wanted = ahead(ids, 2)
    right = []
    for logits in steps(served.drafter, captured, embedded, following, count, served.window):
        right.append(served.drafter.target_ids(logits.argmax(-1)) == wanted)
        wanted = ahead(wanted)
    return torch.stack(right, -1).int().cumprod(-1).sum(-1)


def inputs(served, captured, ids):
    """What the first and the second step read: states [B, T, n * H_t], inputs of step 0 and of step 1 [B, T, H].

    A server that pairs tokens and states wrongly does so where it reads the target's states only: later steps are fed with its
    own drafts. shift 0 pairs a state with the token that made it; 2 pairs a token with the state before the right one.
    """
    table = served.embedding
    if served.shift == 2:
        late = torch.zeros_like(captured)
        late[:, 1:] = captured[:, :-1]
        captured = late
    embedded = embedding(ahead(ids, min(served.shift, 1)), table)
    return captured, embedded, embedding(ahead(ids, 2), table)
