"""Which layers extracted hidden states are, by a fresh forward pass of the target over the same tokens."""

from __future__ import annotations

import torch
from eagle3.target import open_target, pick_device
from eagle3.tensors import BadFileError, read_file

_CLOSE = 0.1
"""Relative difference up to which two implementations in bfloat16 have computed the same; neighbouring layers differ by more."""


def run(request, talk):
    """Answer a request for a comparison (see gpudiag/drafter/audit_forward.py)."""
    device = torch.device(pick_device(request["device"]))
    target = open_target(request["target"], device, getattr(torch, request["dtype"]) if request.get("dtype") else None)
    found = []
    for number, path in enumerate(request["files"]):
        found.append(_file(path, target, request["most_tokens"]))
        talk.progress("compare", number + 1, len(request["files"]))
    return {"files": found, "layers": target.layers, "close": _CLOSE}


def _file(path, target, most):
    """For each layer in a file: which of the target's it is, how far off, the next best, and by how many tokens it is moved."""
    ids, slots = _stored(path, target.width)
    ids = ids.flatten()[:most].long().to(target.device)
    if int(ids.max()) >= target.vocabulary or int(ids.min()) < 0:
        raise BadFileError(f"{path} has token ids that the target does not have")
    top = target.layers if hasattr(target, "blocks") else target.layers - 1
    fresh, normed = target.states(ids[None], set(range(top + 1)))
    known = {str(index): state[0].float() for index, state in fresh.items()} | {"normed": normed[0].float()}
    return [_slot(slot[: len(ids)].to(target.device).float(), known) for slot in slots]


def _slot(stored, known):
    ranked = sorted((_apart(stored, state), name) for name, state in known.items())
    error, name = ranked[0]
    moved = 0
    if error > _CLOSE:
        for by in (1, -1):
            for other, state in known.items():
                apart = _apart(stored[max(0, -by) : len(stored) - max(0, by)], state[max(0, by) : len(state) - max(0, -by)])
                if apart < min(error, _CLOSE):
                    error, name, moved = apart, other, by
    return {"layer": name, "error": error, "next": ranked[1][0], "moved": moved}


def _apart(one, other):
    """Relative difference of the typical token: single ones with huge numbers would hide the rest."""
    if not len(one):
        return float("inf")
    return float(((one - other).norm(dim=-1) / other.norm(dim=-1).clamp(min=1e-12)).median())


def _stored(path, width):
    """Token ids and the layers, each [T, H], of a file of speculators or vLLM (safetensors) or SpecForge (.ckpt)."""
    # torch's restricted reader: tensors and plain containers, no code.
    safe = path.endswith(".safetensors")
    tensors = read_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    ids = tensors.get("token_ids", tensors.get("input_ids")) if isinstance(tensors, dict) else None
    if ids is None:
        raise BadFileError(f"{path} has no token ids")
    joined = tensors.get("hidden_states")
    parts = [joined] if joined is not None else [tensors.get("aux_hidden_state"), tensors.get("hidden_state")]
    slots = []
    for part in parts:
        if part is None or part.numel() % (width * ids.numel()):
            raise BadFileError(f"{path} has no states of width {width} for {ids.numel()} tokens")
        slots += list(part.reshape(ids.numel(), -1, width).unbind(1))
    return ids, slots
