"""progress.json: what a person wants to know of a run now, in numbers and in one sentence."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from gpudiag.launch.evidence import Told
from gpudiag.launch.weight_load import Amount
from gpudiag.model.run import PhaseProgress, RunState, Serving

DOING: Final = {
    "import": "importing",
    "distributed-init": "joining the process group",
    "weight-load": "loading weights",
    "kv-allocation": "allocating the KV cache",
    "compile": "compiling kernels",
    "graph-capture": "capturing CUDA graphs",
    "warm-up": "warming up",
    "ready": "serving",
}
_MUCH_SLOWER: Final = 1.5


class Situation(Struct, frozen=True, kw_only=True):
    """What the sentence is made of. `now` is Unix time."""

    state: RunState
    now: float
    phase: PhaseProgress
    serving: Serving | None = None
    told: Told | None = None
    """The last evidence that says why the server does not go on, or how it ended."""
    exit_status: int | None = None
    notes: tuple[str, ...] = ()


def with_amount(phase: PhaseProgress, amount: Amount) -> PhaseProgress:
    """The phase with what is done of it."""
    return PhaseProgress(
        phase=phase.phase,
        began_at=phase.began_at,
        ended_at=phase.ended_at,
        last_run_s=phase.last_run_s,
        done=amount.done,
        total=amount.total,
        unit="B",
        rate_per_s=amount.rate_per_s,
        eta_s=amount.eta_s,
        detail=amount.detail,
    )


def compiling(titles: Sequence[str]) -> str | None:
    """'compiling: 12 cicc, 1 ninja' from the command lines of compilers that run; None if there are none."""
    names = Counter(title.partition(" ")[0].rpartition("/")[2] for title in titles)
    return "compiling: " + ", ".join(f"{count} {name}" for name, count in names.most_common(3)) if names else None


def sentence(of: Situation) -> str:
    """'loading weights: 312 of 547 GB, 21.0 GB/s, 11 s left'."""
    verdict = f": {_verdict(of.told)}" if of.told is not None and of.told.title else ""
    if of.state == "stalled":
        return f"{DOING[of.phase.phase]} stalled{verdict}"
    if of.state == "crashed":
        return f"ended {how_ended(of.exit_status)}{verdict}"
    if of.state == "killed":
        return (
            f"was killed{verdict}" if of.exit_status is None or of.exit_status >= 0 else f"{how_ended(of.exit_status)}{verdict}"
        )
    if of.state in ("stopping", "stopped"):
        return f"{of.state} while it hung{verdict}" if verdict else of.state
    if of.state == "serving":
        return _serving(of.serving, of.notes)
    return f"{DOING[of.phase.phase]}{_amount(of.phase)}{_late(of)}"


def how_ended(status: int | None) -> str:
    """'with exit code 1', 'killed by SIGKILL'."""
    if status is None:
        return "and its exit status is not known"
    if status >= 0:
        return f"with exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def size(count: float) -> str:
    """Bytes in decimal units, as disks and networks count them: '9.1 MB', '547 GB'."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 99.5 or unit == "B" else f"{count:.1f} {unit}"


def part(done: float, total: float) -> str:
    """'312 of 547 GB', '900 kB of 9.4 MB'."""
    small, large = size(done), size(total)
    number, _, unit = small.partition(" ")
    return f"{number if large.endswith(f' {unit}') else small} of {large}"


def _verdict(told: Told) -> str:
    unkept = f"; evidence not kept: {told.unkept}" if told.unkept else ""
    return (f"{told.code} {told.title}" if told.code else told.title) + unkept


def _amount(phase: PhaseProgress) -> str:
    if phase.done is None:
        return f": {phase.detail}" if phase.detail else ""
    if phase.unit == "B":
        parts = [part(phase.done, phase.total) if phase.total else size(phase.done)]
        if phase.rate_per_s:
            parts.append(f"{size(phase.rate_per_s)}/s")
    else:
        parts = [f"{phase.done:.0f} of {phase.total:.0f}" if phase.total else f"{phase.done:.0f}"]
    if phase.eta_s is not None and phase.eta_s >= 1:
        parts.append(f"{phase.eta_s:.0f} s left")
    if phase.detail:
        parts.append(phase.detail)
    return ": " + ", ".join(parts)


def _late(of: Situation) -> str:
    """Said once a phase takes much longer than it did the last time."""
    took, last = of.now - of.phase.began_at, of.phase.last_run_s
    return f" ({took:.0f} s, last time {last:.0f} s)" if last and took > max(_MUCH_SLOWER * last, last + 5) else ""


def _serving(serving: Serving | None, notes: tuple[str, ...]) -> str:
    parts = []
    if serving is not None:
        if serving.running is not None:
            parts.append(f"{serving.running:.0f} running")
        if serving.waiting:
            parts.append(f"{serving.waiting:.0f} waiting")
        if serving.tokens_per_s is not None:
            parts.append(f"{serving.tokens_per_s:.1f} tokens/s")
        if serving.acceptance_length is not None:
            parts.append(f"acceptance length {serving.acceptance_length:.2f}")
    parts += notes
    return "serving" + (": " + ", ".join(parts) if parts else "")
