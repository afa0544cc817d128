"""EAGLE-3 on: the drafter, how far it runs ahead, and what each engine would otherwise decide silently."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpudiag.engines.launching import DIALECTS
from gpudiag.engines.words import taken_apart, value_of
from gpudiag.launch import drafters
from gpudiag.launch.builder import PlanBuilder
from gpudiag.launch.profile import Figure, Profile, Speculation
from gpudiag.launch.request import Request
from gpudiag.model.modelfiles import ModelConfig, Tensor

_PLAIN: Final = frozenset({"F32", "F16", "BF16", "I64", "I32", "BOOL"})
_GENERAL: Final = "a chain of three drafts: every model, attention backend and engine can verify it"
_DEFAULTS: Final = Speculation(
    steps=Figure(value=3, source=_GENERAL), top_k=Figure(value=1, source=_GENERAL), draft_tokens=Figure(value=4, source=_GENERAL)
)
MAX_RUNNING: Final = 256
"""Requests at once for SGLang with a drafter: vLLM's long-standing default, five times what SGLang would fall back to."""


def choose_drafter(
    builder: PlanBuilder,
    request: Request,
    profiles: Sequence[Profile],
    model: ModelConfig | None,
    variables: Mapping[str, str],
    home: Path,
) -> tuple[str, str] | None:
    """Directory of the drafter and who named it; None with a note that says why EAGLE-3 is off."""
    own = next((w for w in DIALECTS[request.engine].speculation if builder.says((w,)) is not None), None)
    if own is not None:
        if request.draft is not None:
            builder.notes.append(f"--draft is left out: your {own} decides about speculation")
        return None
    if not request.speculate:
        builder.notes.append("EAGLE-3 off: --no-draft")
        return None
    if request.draft is not None:
        return request.draft, "command line"
    off = next((p.engine(request.engine).speculation.off for p in profiles if p.engine(request.engine).speculation.off), None)
    if off is not None:
        builder.notes.append(f"EAGLE-3 off: {off}")
        return None
    return _of_profiles(builder, profiles, model, variables, home)


def own(request: Request) -> tuple[str | None, str | None]:
    """Algorithm and drafter that the engine's own arguments name, as far as they can be read without the engine."""
    options = taken_apart(request.arguments, None)
    if request.engine == "sglang":
        algorithm = value_of(options, ("--speculative-algorithm", "--speculative-algo"))
        return algorithm, value_of(options, DIALECTS["sglang"].speculation[1:])
    try:
        said = json.loads(value_of(options, DIALECTS["vllm"].speculation) or "{}")
    except ValueError:
        return None, None
    method, drafter = (said.get("method"), said.get("model")) if isinstance(said, dict) else (None, None)
    return (method if isinstance(method, str) else None), (drafter if isinstance(drafter, str) else None)


def _of_profiles(
    builder: PlanBuilder, profiles: Sequence[Profile], model: ModelConfig | None, variables: Mapping[str, str], home: Path
) -> tuple[str, str] | None:
    absent: list[str] = []
    for profile in profiles:
        for choice in drafters.fitting(profile.drafters, model):
            found = drafters.directory_of(choice.name, variables, home)
            if found is not None:
                return found, f"profile {profile.name}: {choice.source}"
            absent.append(choice.name)
    if absent:
        short = absent[0].rpartition("/")[2]
        builder.notes.append(
            f"EAGLE-3 off: no drafter on this disk; hf download {absent[0]} --local-dir {short}, then --draft {short}"
        )
    else:
        builder.notes.append("EAGLE-3 off: no drafter; give --draft DIR")
    return None


def add(
    builder: PlanBuilder, request: Request, profiles: Sequence[Profile], drafter: tuple[str, str], tensors: Sequence[Tensor]
) -> None:
    """What turns EAGLE-3 on. `tensors` are those of the drafter; empty if they could not be read."""
    chosen = _chosen(request, profiles)
    if request.engine == "vllm":
        _vllm(builder, drafter, chosen)
    else:
        _sglang(builder, drafter, chosen, tensors)


def _chosen(request: Request, profiles: Sequence[Profile]) -> Speculation:
    """Each figure from the first profile that has it: its engine's own, then its general one, then ours."""
    offered = [s for p in profiles for s in (p.engine(request.engine).speculation, p.speculation)]
    everything = (*offered, _DEFAULTS)
    return Speculation(
        steps=next(s.steps for s in everything if s.steps is not None),
        top_k=next(s.top_k for s in everything if s.top_k is not None),
        draft_tokens=next(s.draft_tokens for s in everything if s.draft_tokens is not None),
    )


def _vllm(builder: PlanBuilder, drafter: tuple[str, str], chosen: Speculation) -> None:
    path, who = drafter
    steps = chosen.steps or Figure(value=3, source=_GENERAL)
    value = json.dumps({"method": "eagle3", "model": path, "num_speculative_tokens": steps.value})
    why = (
        f"EAGLE-3: drafter from {who}; {steps.value} drafts a round ({steps.source}); the method is named, since vLLM guesses it "
        "from the path; the drafter is taken as unquantised"
    )
    builder.option(DIALECTS["vllm"].speculation, value, why, who, switch="--no-draft")


def _sglang(builder: PlanBuilder, drafter: tuple[str, str], chosen: Speculation, tensors: Sequence[Tensor]) -> None:
    path, who = drafter
    off = "--no-draft"
    why = "with EAGLE the drafter's projection would be skipped without an error, and nothing accepted (GPD604)"
    builder.option(("--speculative-algorithm", "--speculative-algo"), "EAGLE3", why, "what the drafter is", switch=off)
    builder.option(DIALECTS["sglang"].speculation[1:], path, "the drafter", who, switch=off)
    figures = (
        ("--speculative-num-steps", chosen.steps, "drafts one after the other"),
        ("--speculative-eagle-topk", chosen.top_k, "branches a step; 1 is a chain"),
        ("--speculative-num-draft-tokens", chosen.draft_tokens, "tokens the target verifies a round"),
    )
    for name, figure, what in figures:
        if figure is not None:
            builder.option((name,), str(figure.value), what, figure.source, switch=off)
    _quantization(builder, tensors)


def keep_running(builder: PlanBuilder) -> None:
    """Say how many requests SGLang serves at once; it is to be called wherever there is speculation, whoever asked for it."""
    why = "when a drafter is used and this is not set, SGLang serves 48 requests at once and says so in a warning only"
    builder.option(DIALECTS["sglang"].max_running, str(MAX_RUNNING), why, "sglang 0.5.23, speculative_hook.py")


def _quantization(builder: PlanBuilder, tensors: Sequence[Tensor]) -> None:
    """An unquantised drafter stays so, whatever --quantization says or SGLang finds in the target's config.json (GPD611)."""
    name = "--speculative-draft-model-quantization"
    if not tensors or any(t.dtype not in _PLAIN for t in tensors):
        return
    flag = builder.table.find(name) if builder.table is not None else None
    if flag is not None and flag.choices is not None and "unquant" not in flag.choices:
        builder.notes.append(f"this SGLang has no {name} unquant: a quantised target's --quantization reaches the drafter")
        return
    kinds = ", ".join(sorted({t.dtype for t in tensors if t.dtype.startswith(("F", "BF"))}))
    builder.option(
        (name,),
        "unquant",
        f"the drafter's tensors are {kinds}; unset, it inherits the target's --quantization",
        "drafter's files",
        required=False,
        switch="--no-draft",
    )
