"""Speculative decoding the slow way: what a server does round by round, with nothing cached and nothing computed at once.

An implementation of its own, against which the replay is held. Reads {"target", "draft", "prompts", "length", "steps", "topk",
"nodes", "fault"} from a file and prints a text for each prompt, with the accepted drafts of every round.
usage: speculate.py PLACE_OF_TORCHSIDE REQUEST
"""

# mypy: ignore-errors
# Tensors have no types worth writing down.
from __future__ import annotations

import json
import math
import sys

import torch
from torch.nn.functional import linear, silu, softmax

sys.path.insert(0, sys.argv[1])
from eagle3.tensors import Tensors  # type: ignore[import-not-found]


def load(directory):
    tensors = Tensors(directory)
    with open(f"{directory}/config.json") as file:
        config = json.load(file)
    loaded = {n.replace("midlayer.", "layers.0."): tensors.load(n) for n in tensors.names()}
    return config, {n: w.float() if w.is_floating_point() else w for n, w in loaded.items()}


def rms(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def turn(x, positions, theta):
    """Rotate [T, heads, D]."""
    size = x.shape[-1]
    angle = positions[:, None].float() / theta ** (torch.arange(0, size, 2) / size)
    angle = torch.cat((angle, angle), -1)[:, None]
    other = torch.cat((-x[..., size // 2 :], x[..., : size // 2]), -1)
    return x * angle.cos() + other * angle.sin()


def attend(x, w, start, config):
    """Causal attention over rows [T, ...]; heads share keys in groups."""
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    size = config["head_dim"]
    positions = torch.arange(len(x))
    q, k, v = (
        linear(x, w[f"{start}self_attn.{n}_proj.weight"]).view(len(x), c, size) for n, c in (("q", heads), ("k", kv), ("v", kv))
    )
    q, k = turn(q, positions, config["rope_theta"]), turn(k, positions, config["rope_theta"])
    out = []
    for head in range(heads):
        theirs = head // (heads // kv)
        scores = q[:, head] @ k[:, theirs].T / math.sqrt(size)
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
        out.append(softmax(scores, -1) @ v[:, theirs])
    return linear(torch.cat(out, -1), w[f"{start}self_attn.o_proj.weight"])


def feed(x, w, start):
    gate, up, down = (w[f"{start}mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
    return linear(silu(linear(x, gate)) * linear(x, up), down)


class Target:
    def __init__(self, directory):
        self.config, self.w = load(directory)

    def run(self, ids):
        """Inputs of every layer and logits."""
        eps = self.config["rms_norm_eps"]
        x, inputs = self.w["model.embed_tokens.weight"][torch.tensor(ids)], []
        for layer in range(self.config["num_hidden_layers"]):
            start = f"model.layers.{layer}."
            inputs.append(x)
            x = x + attend(rms(x, self.w[f"{start}input_layernorm.weight"], eps), self.w, start, self.config)
            x = x + feed(rms(x, self.w[f"{start}post_attention_layernorm.weight"], eps), self.w, start)
        return [*inputs, x], rms(x, self.w["model.norm.weight"], eps) @ self.w["lm_head.weight"].T


class Drafter:
    def __init__(self, directory, target, fault):
        self.config, self.w = load(directory)
        self.target, self.fault = target, fault
        self.layers = fault.get("layers") or self.config["eagle_aux_hidden_state_layer_ids"]
        self.norms = {"fc_norm": "fc_norm.0.weight" in self.w, "input_norm": "input_norm.weight" in self.w}
        self.embedding = self.w.get("embed_tokens.weight", target.w["model.embed_tokens.weight"])
        if fault.get("embedding"):
            self.embedding = torch.randn(self.embedding.shape, generator=torch.Generator().manual_seed(77))

    def begin(self, ids):
        """The rows that a round starts from: (hidden state, token) for each token whose state is known."""
        inputs, _ = self.target.run(ids[:-1])
        parts = [inputs[layer] for layer in self.layers]
        eps = self.config["rms_norm_eps"]
        if self.norms["fc_norm"]:
            parts = [rms(p, self.w[f"fc_norm.{i}.weight"], eps) for i, p in enumerate(parts)]
        states = torch.cat(parts, -1)
        if self.norms["input_norm"]:
            states = rms(states, self.w["input_norm.weight"], eps)
        states = states @ self.w["fc.weight"].T
        tokens = ids[:-1] if self.fault.get("shift") == 0 else ids[1:]
        return [(state, token) for state, token in zip(states, tokens, strict=True)]

    def look(self, rows):
        """Logits after the last row, and the hidden state that the next row reads."""
        eps, w = self.config["rms_norm_eps"], self.w
        hidden = torch.stack([h for h, _ in rows])
        embedded = self.embedding[torch.tensor([t for _, t in rows])]
        normed = hidden if self.fault.get("skip") else rms(hidden, w["layers.0.hidden_norm.weight"], eps)
        residual = normed if self.config.get("norm_before_residual") else hidden
        x = torch.cat((rms(embedded, w["layers.0.input_layernorm.weight"], eps), normed), -1)
        h = residual + attend(x, w, "layers.0.", self.config)
        h = h + feed(rms(h, w["layers.0.post_attention_layernorm.weight"], eps), w, "layers.0.")
        last = rms(h, w["norm.weight"], eps)[-1]
        post = self.config.get("norm_output", False) != bool(self.fault.get("feedback"))
        return last @ w["lm_head.weight"].T, (last if post else h[-1])

    def token(self, draft_id):
        offset = int(self.w["d2t"][draft_id]) if "d2t" in self.w else 0
        return draft_id + offset + (draft_id if self.fault.get("d2t") else 0)


def chain(drafter, ids, steps):
    rows, drafts = drafter.begin(ids), []
    for _ in range(steps):
        logits, hidden = drafter.look(rows)
        drafts.append(drafter.token(int(logits.argmax())))
        rows.append((hidden, min(drafts[-1], len(drafter.embedding) - 1)))
    return [drafts]


def tree(drafter, ids, steps, topk, nodes):
    """Paths of the verified nodes: at each level the best children of the best nodes, in the end the best of all."""
    logits, hidden = drafter.look(drafter.begin(ids))
    chance, best = softmax(logits, -1).topk(topk)
    alive = [(float(c), [drafter.token(int(t))], [(hidden, drafter.token(int(t)))]) for c, t in zip(chance, best, strict=True)]
    every = [(score, path) for score, path, _ in alive]
    for _ in range(steps - 1):
        grown = []
        for score, path, rows in alive:
            logits, hidden = drafter.look(drafter.begin(ids) + rows)
            chance, best = softmax(logits, -1).topk(topk)
            for c, t in zip(chance, best, strict=True):
                token = drafter.token(int(t))
                grown.append((score * float(c), [*path, token], [*rows, (hidden, token)]))
        every += [(score, path) for score, path, _ in grown]
        alive = sorted(grown, key=lambda one: -one[0])[:topk]
    return [path for _, path in sorted(every, key=lambda one: -one[0])[:nodes]]


def speculate(target, drafter, prompt, request):
    """Tokens of a greedy target, and how many drafts each round had accepted."""
    _, logits = target.run(prompt)
    ids, rounds = [*prompt, int(logits[-1].argmax())], []
    while len(ids) < len(prompt) + request["length"]:
        known = list(ids)
        for _ in range(request["steps"] + 1):
            known.append(int(target.run(known)[1][-1].argmax()))
        says = known[len(ids) :]
        if request["topk"] > 1:
            paths = tree(drafter, ids, request["steps"], request["topk"], request["nodes"])
        else:
            paths = chain(drafter, ids, request["steps"])
        accepted = max(next((i for i, (a, b) in enumerate(zip(p, says, strict=False)) if a != b), len(p)) for p in paths)
        rounds.append(accepted)
        ids += says[: accepted + 1]
    return ids[: len(prompt) + request["length"]], rounds


def main():
    torch.set_num_threads(1)
    with open(sys.argv[2]) as file:
        request = json.load(file)
    target = Target(request["target"])
    drafter = Drafter(request["draft"], target, request["fault"]) if request.get("draft") else None
    found = []
    with torch.no_grad():
        for prompt in request["prompts"]:
            if drafter is None:
                ids = list(prompt)
                for _ in range(request["length"]):
                    ids.append(int(target.run(ids)[1][-1].argmax()))
                found.append({"ids": ids, "prompt": len(prompt)})
                continue
            ids, rounds = speculate(target, drafter, prompt, request)
            found.append({"ids": ids, "prompt": len(prompt), "rounds": rounds})
    print(json.dumps(found))


main()
