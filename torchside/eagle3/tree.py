"""How far a text follows the tree of drafts that SGLang would build, from every place where a round could have started.

SGLang 0.5.23, srt/speculative: select_top_k_tokens keeps at each level the `topk` children with the highest product of
probabilities; of all children of all levels the best num_draft_tokens - 1 are verified. Which wrong branches are alive decides
which right ones are, so that the tree has to be grown for real; only the first step is shared with the chain.
"""

from __future__ import annotations

import math

import torch
from eagle3.chain import attend, inputs, out_of_sight
from torch.nn.functional import embedding

_CELLS = 1 << 26
"""Attention scores held at a time."""


@torch.no_grad()
def accepted(served, captured, ids, levels, topk, nodes):
    """The depth of the text in the tree at each index, [B, T]. `nodes` are num_draft_tokens - 1."""
    return torch.stack([_one(served, captured[b : b + 1], ids[b : b + 1], levels, topk, nodes) for b in range(ids.shape[0])])


def _one(served, captured, ids, levels, topk, nodes):
    drafter = served.drafter
    captured, embedded, _ = inputs(served, captured, ids)
    length = ids.shape[1]
    positions = torch.arange(length, device=ids.device)
    q, k, v, residual = drafter.project(embedded, drafter.start(captured), positions)
    hidden, logits = drafter.finish(attend(q, (k, v), [], served.window), residual)
    grown = []
    size = max(1, _CELLS // (topk * drafter.heads * length))
    for at in range(0, length, size):
        starts = positions[at : at + size]
        grown.append(_grow(served, starts, hidden[0, starts], logits[0, starts], (k[0], v[0]), ids[0], levels, topk, nodes))
    return torch.cat(grown)


def _best(logits, count):
    """Probabilities and draft ids of the best `count`."""
    return logits.float().softmax(-1).topk(count, -1)


def _grow(served, starts, hidden, logits, cache, ids, levels, topk, nodes):
    """Grow and cut the trees of some starts; how deep the text goes in each, [N]."""
    count = starts.shape[0]
    chance, token = _best(logits, topk)
    level = _Level(chance, token, hidden[:, None].expand(-1, topk, -1), None)
    every = [chance]
    on_path = [_is_next(served, token, starts, ids, 2)]
    follows = on_path[0]
    for depth in range(1, levels):
        hidden, logits = _step(served, starts, level, cache, depth)
        chance, token = _best(logits, topk)
        product = level.score[..., None] * chance
        every.append(product.flatten(1))
        right = follows[..., None] & _is_next(served, token, starts, ids, 2 + depth)
        on_path.append(right.flatten(1))
        score, chosen = product.flatten(1).topk(topk, -1)
        parent = chosen // topk
        level = level.children(score, token.flatten(1).gather(1, chosen), hidden, parent)
        follows = right.flatten(1).gather(1, chosen)
    flat = torch.cat(every, 1)
    kept = torch.zeros_like(flat, dtype=torch.bool)
    kept.scatter_(1, flat.topk(min(nodes, flat.shape[1]), 1).indices, True)
    reached = torch.ones(count, dtype=torch.bool, device=starts.device)
    depth_of_text = torch.zeros(count, dtype=torch.int32, device=starts.device)
    at = 0
    for right in on_path:
        width = right.shape[1]
        # One child at most is on the text's path at each level, and a kept child's parent is kept.
        reached = reached & (right & kept[:, at : at + width]).any(1)
        depth_of_text += reached.int()
        at += width
    return depth_of_text


class _Level:
    """The live nodes of a level: score and token [N, K], what they read [N, K, H], and keys and values of those above them."""

    def __init__(self, score, token, hidden, above):
        self.score, self.token, self.hidden, self.above = score, token, hidden, above
        self.own = None

    def children(self, score, token, hidden, parent):
        """The chosen children: each takes its parent's hidden state and line of ancestors."""
        line = [*(self.above or []), self.own]
        pick = parent[..., None, None]
        moved = [tuple(x.gather(1, pick.expand(-1, -1, *x.shape[2:])) for x in pair) for pair in line]
        read = hidden.gather(1, parent[..., None].expand(-1, -1, hidden.shape[-1]))
        return _Level(score, token, read, moved)


def _step(served, starts, level, cache, depth):
    """One forward of all live nodes: (what their children read [N, K, H], logits [N, K, V_d])."""
    drafter = served.drafter
    embedded = embedding(drafter.target_ids(level.token).clamp(0, served.embedding.shape[0] - 1), served.embedding)
    q, k, v, residual = drafter.project(embedded, level.hidden, (starts + depth)[:, None].expand_as(level.token))
    level.own = (k, v)
    scale = 1 / math.sqrt(drafter.head_dim)
    keys, values = cache
    scores = torch.einsum("nkhd,shd->nkhs", q, keys) * scale
    unseen = out_of_sight(torch.arange(keys.shape[0], device=starts.device), starts, served.window and served.window - depth)
    scores = scores.masked_fill(unseen[:, None, None, :], -math.inf)
    line = [*(level.above or []), level.own]
    own = [(q * pair[0]).sum(-1, keepdim=True) * scale for pair in line]
    weights = torch.cat([scores, *own], -1).float().softmax(-1).to(q.dtype)
    attended = torch.einsum("nkhs,shd->nkhd", weights[..., : keys.shape[0]], values)
    for n, pair in enumerate(line):
        attended = attended + weights[..., keys.shape[0] + n, None] * pair[1]
    return drafter.finish(attended, residual)


def _is_next(served, token, starts, ids, by):
    """Whether each drafted token is the text's token `by` places after its start; nothing matches beyond the text."""
    place = starts + by
    wanted = torch.where(place < ids.shape[0], ids[place.clamp(max=ids.shape[0] - 1)], -1)
    return served.drafter.target_ids(token) == wanted.view(-1, *(1,) * (token.dim() - 1))
