"""Trains a drafter on texts of its target: training-time test, resumable, over as many GPUs as there are processes.

One step runs the drafter `unroll` times over a batch, each time on its own hidden states of the time before, as a server does:
loss = sum over j of decay^j times the cross entropy with the target's distribution, restricted to the draft vocabulary; places at
which the target's first choice is outside it are left out (EAGLE-3, arXiv 2503.01840; SpecForge 0.2.0, decay 0.8).
"""

from __future__ import annotations

import math
import time

import torch
from eagle3 import chain
from eagle3.checkpoint import load_state, save_drafter, save_state
from eagle3.drafter import Drafter, open_drafter
from eagle3.ranks import Ranks
from eagle3.target import open_target, pick_device

_LAYER = "layers.0."


def run(request, talk):
    """Answer a training request (see gpudiag/drafter/train.py)."""
    ranks = Ranks(request, pick_device(request["device"]))
    target = open_target(request["target"], ranks.device, _dtype(request.get("dtype")))
    drafter = _first(request, target, ranks)
    training = Training(drafter, target, request, ranks)
    state = load_state(request["out"]) if request["resume"] else None
    if state is not None:
        training.resume(state)
    began, seen = time.monotonic(), 0
    total = request["steps"]
    saved_at = time.monotonic()
    while training.step < total and not _out_of_time(request, began, ranks):
        loss, accuracy, tokens = training.one()
        seen += tokens * ranks.count
        if ranks.first:
            rate = seen / max(1e-9, time.monotonic() - began)
            talk.progress(
                "train", training.step, total, loss=round(loss, 4), accuracy=[round(a, 4) for a in accuracy], rate=round(rate, 1)
            )
            if time.monotonic() - saved_at > request["save_every_s"]:
                training.save()
                saved_at = time.monotonic()
    if ranks.first:
        training.save()
        for dialect, directory in request["dialects"].items():
            save_drafter(directory, dialect, training.drafter, training.used, target, request)
    ranks.end()
    spent = time.monotonic() - began
    return {
        "steps": training.step,
        "tokens": seen,
        "took_s": spent,
        "rate": seen / spent if spent else 0.0,
        "loss": training.loss,
        "accuracy": training.accuracy,
        "ranks": ranks.count,
        "covered": training.covered,
        "parameters": sum(w.numel() for w in training.parameters),
        "device": str(ranks.device),
    }


def _dtype(name):
    return getattr(torch, name) if name else None


def _out_of_time(request, began, ranks):
    """Every rank has to stop at the same step."""
    limit = request.get("limit_s")
    return bool(limit) and ranks.any(time.monotonic() - began >= limit)


def _first(request, target, ranks):
    """The drafter to begin with: one that is there, or one with weights drawn at random."""
    if request.get("start"):
        drafter = open_drafter(request["start"], target, ranks.device)
    else:
        drafter = _fresh(request, target, ranks.device)
    # Weights are kept in float32 while they learn, whatever the target's type is.
    drafter.weights = {n: w.float() if w.is_floating_point() else w for n, w in drafter.weights.items()}
    return drafter


def _fresh(request, target, device):
    shape, width = request["shape"], target.width
    heads, kv_heads, head_dim = shape["num_attention_heads"], shape["num_key_value_heads"], shape["head_dim"]
    inter, size = shape["intermediate_size"], len(request["vocabulary"])
    linear = {
        "fc": (width, len(request["layers"]) * width),
        "lm_head": (size, width),
        _LAYER + "self_attn.q_proj": (heads * head_dim, 2 * width),
        _LAYER + "self_attn.k_proj": (kv_heads * head_dim, 2 * width),
        _LAYER + "self_attn.v_proj": (kv_heads * head_dim, 2 * width),
        _LAYER + "self_attn.o_proj": (width, heads * head_dim),
        _LAYER + "mlp.gate_proj": (inter, width),
        _LAYER + "mlp.up_proj": (inter, width),
        _LAYER + "mlp.down_proj": (width, inter),
    }
    norms = ["norm", *(_LAYER + n for n in ("hidden_norm", "input_layernorm", "post_attention_layernorm"))]
    weights = {f"{n}.weight": (torch.randn(s) / math.sqrt(s[1])).to(device) for n, s in linear.items()}
    weights.update({f"{n}.weight": torch.ones(width, device=device) for n in norms})
    used = torch.tensor(request["vocabulary"], device=device)
    weights["d2t"] = used - torch.arange(size, device=device)
    drafter = Drafter(
        weights,
        shape,
        eps=shape["rms_norm_eps"],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        target_width=width,
        device=device,
    )
    drafter.post_norm_feedback = request.get("post_norm_feedback", False)
    return drafter


class Training:
    """A drafter that learns, with everything that a resumed run needs."""

    def __init__(self, drafter, target, request, ranks):
        self.drafter, self.target, self.request, self.ranks = drafter, target, request, ranks
        self.step, self.loss, self.accuracy = 0, float("nan"), []
        frozen = ("d2t", "embed_tokens.weight")
        self.names = [n for n, w in drafter.weights.items() if n not in frozen and w.is_floating_point()]
        for name in self.names:
            drafter.weights[name].requires_grad_(True)
        self.parameters = [drafter.weights[n] for n in self.names]
        ranks.same(self.parameters)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=request["rate"], betas=(0.9, 0.95), weight_decay=0.0)
        self.used = drafter.target_ids(torch.arange(drafter.vocabulary, device=ranks.device))
        self.known = torch.zeros(target.vocabulary, dtype=torch.bool, device=ranks.device)
        self.known[self.used] = True
        own = drafter.weights.get("embed_tokens.weight")
        self.embedding = (target.embedding if own is None else own).float()
        self.windows = _windows(request["sequences"], request["context"], request["unroll"])
        self.covered = self._covered()

    def one(self):
        """One optimizer step: (loss, accuracy by unrolled step, tokens of this rank)."""
        ids, mask = self._batch()
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        loss, accuracy = self._loss(ids, mask)
        self.optimizer.zero_grad()
        loss.backward()
        self.ranks.average([p.grad for p in self.parameters if p.grad is not None])
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.step += 1
        self.loss, self.accuracy = float(loss.detach()), accuracy
        return self.loss, accuracy, int(mask.sum())

    def save(self):
        weights = {n: self.drafter.weights[n].detach() for n in self.names}
        save_state(self.request["out"], self.step, weights, self.optimizer, self.names)

    def resume(self, state):
        """Take up weights, optimizer and step of a run that ended. The windows of a step follow from its number."""
        with torch.no_grad():
            for name in self.names:
                self.drafter.weights[name].copy_(state.weights[name])
        self.step = state.step
        for name, parameter in zip(self.names, self.parameters):
            self.optimizer.state[parameter] = state.moments(name, parameter)

    def _rate(self):
        """Warm up over a twentieth, then a cosine down to a twentieth of the peak."""
        total = self.request["steps"]
        warm = min(1.0, (self.step + 1) / max(1, total // 20))
        return self.request["rate"] * warm * max(0.05, 0.5 * (1 + math.cos(math.pi * self.step / total)))

    def _batch(self):
        """Windows of this step and rank, drawn by their number alone, so that a resumed run draws the same."""
        draw = torch.Generator().manual_seed(
            self.request.get("seed", 0) * 1_000_003 + self.step * self.ranks.count + self.ranks.rank
        )
        picked = torch.randint(len(self.windows), (self.request["batch"],), generator=draw).tolist()
        rows = [self.windows[i] for i in picked]
        length = max(len(ids) for ids, _ in rows)
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        mask = torch.zeros(len(rows), length, dtype=torch.bool)
        for row, (window, learnt) in enumerate(rows):
            ids[row, : len(window)] = torch.tensor(window)
            mask[row, learnt : len(window)] = True
        return ids.to(self.ranks.device), mask.to(self.ranks.device)

    def _loss(self, ids, mask):
        layers, unroll = self.request["layers"], self.request["unroll"]
        captured, normed = self.target.states(ids, set(layers))
        states = torch.cat([captured[layer] for layer in layers], -1).float()
        with torch.no_grad():
            logits = self.target.logits(normed).float()
            # Index i drafts for token i + 2, which is what the target says after token i + 1.
            wanted = chain.ahead(logits[..., self.used].softmax(-1))
            top = chain.ahead(logits.argmax(-1))
            counts = chain.ahead(mask, 2) & self.known[top]
        embedded = torch.nn.functional.embedding(chain.ahead(ids), self.embedding)
        following = torch.nn.functional.embedding(chain.ahead(ids, 2), self.embedding)
        total, accuracy = 0.0, []
        for j, out in enumerate(chain.steps(self.drafter, states, embedded, following, unroll)):
            cross = -(wanted * out.log_softmax(-1)).sum(-1)
            total = total + self.request["decay"] ** j * (cross * counts).sum() / counts.sum().clamp(min=1)
            right = (self.used[out.argmax(-1)] == top) & counts
            accuracy.append(float(right.sum() / counts.sum().clamp(min=1)))
            wanted, top, counts = chain.ahead(wanted), chain.ahead(top), chain.ahead(counts)
        return total, accuracy

    def _covered(self):
        out = torch.tensor([t for s in self.request["sequences"] for t in s["ids"][s["prompt"] :]], device=self.ranks.device)
        return float(self.known[out].float().mean()) if out.numel() else 0.0


def _windows(sequences, context, unroll):
    """Pieces of the texts, at most `context` tokens: (ids, where what is learnt begins).

    Answers only: prompts are read, not learnt. A later piece of a long text is read as if it were its beginning.
    """
    found = []
    for sequence in sequences:
        ids, prompt = sequence["ids"], sequence["prompt"]
        for start in range(0, max(1, len(ids) - unroll - 1), max(1, context - unroll)):
            window = ids[start : start + context]
            learnt = max(0, prompt - start)
            if len(window) > learnt + unroll + 1:
                found.append((window, learnt))
    if not found:
        from eagle3.tensors import BadFileError

        raise BadFileError(f"no text is longer than its prompt by {unroll + 2} tokens")
    return found
