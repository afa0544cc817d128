"""What training leaves: a drafter in the dialect of an engine, and the state from which it goes on. No pickle."""

from __future__ import annotations

import json
import os

import torch
from eagle3.tensors import read_file, write_file

_STATE = "state.safetensors"
_LAYER = "layers.0."
IDS = "eagle_aux_hidden_state_layer_ids"


class State:
    """Weights, moments and step of a training that was interrupted."""

    def __init__(self, tensors):
        self._tensors = tensors
        self.step = int(tensors["step"].item())
        self.weights = {n.removeprefix("weight."): t for n, t in tensors.items() if n.startswith("weight.")}

    def moments(self, name, parameter):
        """The optimizer's state of one parameter."""

        def near(kind):
            return self._tensors[f"{kind}.{name}"].to(parameter.device)

        return {"step": self._tensors["step"].float().squeeze(), "exp_avg": near("first"), "exp_avg_sq": near("second")}


def save_state(directory, step, weights, optimizer, names):
    os.makedirs(directory, exist_ok=True)
    tensors = {"step": torch.tensor([step])}
    for name in names:
        tensors[f"weight.{name}"] = weights[name].contiguous()
    for group in optimizer.param_groups:
        for name, parameter in zip(names, group["params"]):
            kept = optimizer.state.get(parameter)
            zero = torch.zeros_like(parameter)
            tensors[f"first.{name}"] = kept["exp_avg"] if kept else zero
            tensors[f"second.{name}"] = kept["exp_avg_sq"] if kept else zero
    write_file(os.path.join(directory, _STATE), tensors)


def load_state(directory):
    """The state in a directory; None if there is none."""
    path = os.path.join(directory, _STATE)
    return State(read_file(path)) if os.path.exists(path) else None


def save_drafter(directory, dialect, drafter, used, target, request):
    """Write config.json and model.safetensors as an engine reads them: 'sglang', 'vllm' or 'speculators'."""
    os.makedirs(directory, exist_ok=True)
    layer = "midlayer." if dialect == "sglang" else _LAYER
    dtype = target.dtype
    tensors = {n.replace(_LAYER, layer): w.detach().to(dtype) for n, w in drafter.weights.items() if n != "d2t"}
    # A drafter with all of the target's ids maps none, and vLLM does not load one that does (0.31).
    if "d2t" in drafter.weights and len(used) != target.vocabulary:
        known = torch.zeros(target.vocabulary, dtype=torch.bool)
        known[used.cpu()] = True
        tensors["d2t"], tensors["t2d"] = drafter.weights["d2t"].cpu(), known
    write_file(os.path.join(directory, "model.safetensors"), tensors)
    path = os.path.join(directory, "config.json")
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(config(dialect, drafter, target, request), file, indent=1)
    os.replace(f"{path}.part", path)


def config(dialect, drafter, target, request):
    """config.json of the dialect. SGLang numbers layers by their output, vLLM and speculators by their input."""
    layers = list(request["layers"])
    shape = {k: v for k, v in drafter.layer_config.items() if k not in ("architectures", "eagle_config", IDS)}
    common = {
        **shape,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": drafter.width,
        "num_hidden_layers": 1,
        "vocab_size": target.vocabulary,
        "draft_vocab_size": drafter.vocabulary,
        "tie_word_embeddings": False,
        "torch_dtype": str(target.dtype).removeprefix("torch."),
    }
    if drafter.post_norm_feedback:
        common["norm_output"] = True
    if drafter.norm_before_residual:
        common["norm_before_residual"] = True
    if drafter.target_width != drafter.width:
        common["target_hidden_size"] = drafter.target_width
    if dialect == "sglang":
        return {**common, "eagle_config": {"use_aux_hidden_state": True, IDS: [i - 1 for i in layers]}}
    if dialect == "vllm":
        return {**common, IDS: layers}
    return _speculators(common, layers, request)


def _speculators(common, layers, request):
    outer = ("draft_vocab_size", "norm_output", "norm_before_residual", "target_hidden_size")
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": common["draft_vocab_size"],
        # Left out it would be read as true.
        "norm_before_residual": bool(common.get("norm_before_residual", False)),
        **({"norm_output": True} if common.get("norm_output") else {}),
        IDS: layers,
        "transformer_layer_config": {
            **{k: v for k, v in common.items() if k not in (*outer, "architectures")},
        },
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": request["proposed"]}],
            "verifier": {"name_or_path": request["target"], "architectures": request.get("verifier_architectures", [])},
        },
    }
