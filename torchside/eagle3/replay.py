"""The replay: for each hypothesis and each place in each sequence, how many drafts of a round would have been accepted."""

from __future__ import annotations

import torch
from eagle3 import chain, tree
from eagle3.drafter import open_drafter
from eagle3.target import argmax, open_target, pick_device
from eagle3.variants import applies, served

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def run(request, talk):
    """Answer a replay request (see gpudiag/drafter/replay.py). One sequence at a time: lengths differ, and states are large."""
    device = torch.device(pick_device(request["device"]))
    target = open_target(request["target"], device, _dtype(request.get("dtype")))
    drafter = open_drafter(request["draft"], target, device)
    hypotheses = [h for h in request["hypotheses"] if applies(drafter, h)]
    cases = {h["name"]: served(drafter, target, h, request.get("window")) for h in hypotheses}
    for case in cases.values():
        case.layers = tuple(case.layers or request["learnt"])
    cases = {name: case for name, case in cases.items() if _readable(case.layers, target)}
    wanted = {layer for case in cases.values() for layer in case.layers}
    sequences = request["sequences"]
    tables, own = [], []
    for number, sequence in enumerate(sequences):
        ids, agreement = _extended(target, sequence, request)
        own.append(agreement)
        captured, _ = target.states(ids, wanted)
        row = {}
        for name, case in cases.items():
            states = torch.cat([captured[layer] for layer in case.layers], -1)
            row[name] = _word(_table(case, states, ids, request), sequence["prompt"])
        tables.append(row)
        talk.progress("replay", number + 1, len(sequences), tokens=ids.shape[1])
    return {
        "tables": tables,
        "own_choice": own,
        "covered": _covered(drafter, sequences),
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(device),
    }


def _dtype(name):
    return getattr(torch, name) if name else None


def _readable(layers, target):
    """Layers that the target has. The state after the last block exists where the target is written out."""
    top = target.layers if hasattr(target, "blocks") else target.layers - 1
    return all(0 <= layer <= top for layer in layers)


def _table(case, states, ids, request):
    if request["topk"] > 1:
        return tree.accepted(case, states, ids, request["steps"], request["topk"], request["nodes"])
    return chain.accepted(case, states, ids, request["steps"])


def _word(table, prompt):
    """One digit a start, from the last token of the prompt to the end."""
    return "".join(_DIGITS[n] for n in table[0, prompt - 1 :].tolist())


def _extended(target, sequence, request):
    """The sequence as [1, T + steps + 1], and how often the target's own choice is the text's: [matching, of].

    Rounds at the end of a text draft beyond it. A greedy server verified those drafts against what the target would have said,
    so the target says it here.
    """
    ids = torch.tensor([sequence["ids"]], device=target.device)
    _, normed = target.states(ids, ())
    start = sequence["prompt"] - 1
    chosen = argmax(target, normed[:, start:])
    same = int((chosen[0, :-1] == ids[0, start + 1 :]).sum())
    count = ids.shape[1] - start - 1
    for _ in range(request["steps"] + 1):
        _, normed = target.states(ids, ())
        ids = torch.cat((ids, argmax(target, normed[:, -1:])), 1)
    return ids, [same, count]


def _covered(drafter, sequences):
    """Share of the generated tokens that are in the draft vocabulary: the first draft cannot be right more often."""
    out = torch.tensor([t for s in sequences for t in s["ids"][s["prompt"] :]])
    if not out.numel() or "d2t" not in drafter.weights:
        return 1.0
    known = drafter.target_ids(torch.arange(drafter.vocabulary, device=drafter.device)).cpu()
    return float(torch.isin(out, known).float().mean())
