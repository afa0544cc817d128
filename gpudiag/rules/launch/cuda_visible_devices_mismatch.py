"""GPD704: CUDA_VISIBLE_DEVICES names GPUs that are not there, one of them twice, or fewer than the server needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, Gpu
from gpudiag.model.finding import Finding
from gpudiag.rules.launch.needed import needed
from gpudiag.rules.launch.visible import VARIABLE, Visible, visible
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import listing, plural
from gpudiag.rules.system.gpus import gpu_set


def evaluate(facts: Facts) -> Answer:
    text = facts.system.environment.get(VARIABLE)
    if text is None:
        return skipped(f"{VARIABLE} is not set")
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    view = visible(text, gpus.gpus)
    return found(_faults(view, gpus.gpus, text, facts), passed(f"{VARIABLE} shows {plural(len(view.seen), 'GPU')}"))


def _faults(view: Visible, gpus: tuple[Gpu, ...], text: str, facts: Facts) -> Iterator[Finding]:
    links = [
        seen("environment", "as set where gpudiag runs", f"{VARIABLE}={text[:200]}"),
        seen("nvml", f"GPUs here: {listing([str(g.index) for g in gpus], 16)}"),
    ]
    if view.wrong is not None:
        name, trouble = view.wrong
        hidden = plural(len(view.named) - len(view.seen), "GPU")
        what = f"which is not here: CUDA ends the list there, and hides {hidden} without an error"
        yield CHECK.finding(
            f"{VARIABLE} names {name[:60]!r}" + (f", {what}" if trouble == "unknown" else " twice: then there is no GPU at all"),
            links,
            (f"name GPUs that are here, each once: export {VARIABLE}={','.join(str(g.index) for g in gpus)}",),
        )
        return
    want = needed(facts)
    if want is not None and len(view.seen) < want.gpus <= len(gpus):
        yield CHECK.finding(
            f"{VARIABLE} shows {plural(len(view.seen), 'GPU')} of {len(gpus)}; {want.words} needs {want.gpus}",
            links,
            (f"unset {VARIABLE}, or name {want.gpus} GPUs in it",),
        )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD704",
        name="cuda-visible-devices-mismatch",
        severity="error",
        category="launch",
        asks="are the GPUs that CUDA_VISIBLE_DEVICES names here, and enough?",
    ),
    evaluate=evaluate,
)
