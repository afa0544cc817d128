"""GPD315: weights are being loaded, and bytes arrive. Slow, not hung."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member
from gpudiag.model.stack import Frame
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import culprit, label
from gpudiag.waits.picture import Picture

LOAD_FUNCTIONS = (
    "load_weights",
    "load_model",
    "get_all_weights",
    "safetensors_weights_iterator",
    "pt_weights_iterator",
    "safe_open",
    "load_file",
)
LOAD_FILES = ("weight_utils.py", "model_loader/loader.py", "default_loader.py", "safetensors/torch.py", "base_loader.py")
ENOUGH_BYTES = 1 << 20
"""One MiB between two looks: a loader that makes progress reads far more, a log writer far less."""


def evaluate(picture: Picture) -> Iterator[Finding]:
    loading = [
        (m, p, frame, grown)
        for m, p in picture.members()
        if (frame := _loads(picture, m, p)) and (grown := _bytes(picture, p)) >= ENOUGH_BYTES
    ]
    if not loading:
        return
    span = picture.observation.span_s
    total = sum(grown for *_, grown in loading)
    member, process, frame, _ = loading[0]
    names = f"{len(loading)} ranks load" if len(loading) > 1 else f"{label(picture, f'pid:{process.pid}')} loads"
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"{names} weights at {total / span / 1e6:.0f} MB/s: slow, not hung",
        links=(
            (Evidence(source="io-counters", claim=f"{total / 1e6:.0f} MB arrived in {span:.1f} s", at=picture.at),),
            (
                picture.stack_evidence(
                    process.pid, process.pid, frame, f"{member.role} pid {process.pid} stands in the weight loader"
                ),
            ),
        ),
        culprits=tuple(culprit(picture, f"pid:{p.pid}", frame=f) for _, p, f, _ in loading),
        next_steps=("wait; divide the size of the checkpoint by the rate above for the time it needs",),
    )


def _loads(picture: Picture, member: Member, process: Process) -> Frame | None:
    stack = picture.stack(process.pid, process.pid) if member.ranked else None
    if stack is None:
        return None
    return next((f for f in stack.frames if f.file.endswith(LOAD_FILES) or f.function.rsplit(".", 1)[-1] in LOAD_FUNCTIONS), None)


def _bytes(picture: Picture, process: Process) -> int:
    """Bytes that arrived between the looks: read calls, or pages of a memory-mapped checkpoint (major faults, resident size)."""
    first = picture.observation.first.process(process.pid)
    if first is None or not picture.observation.has_change:
        return 0
    read = (
        process.io.value.read_chars - first.io.value.read_chars if isinstance(process.io, Ok) and isinstance(first.io, Ok) else 0
    )
    return max(read, process.rss_bytes - first.rss_bytes)


RULE = Rule(code="GPD315", name="weight-load-in-progress", severity="info", evaluate=evaluate, specificity=88)
