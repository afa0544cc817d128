"""Which layers extracted hidden states are, by one fresh forward pass of the target, in a child with torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from gpudiag.drafter import torch_child
from gpudiag.drafter.audit_states import files_in
from gpudiag.model.audit import Audit, AuditFact, AuditItem

FILES: Final = 2
_MOST_TOKENS: Final = 512
_NORMED: Final = "normed"


def with_forward(
    audit: Audit,
    directory: Path,
    target: str,
    *,
    python: str,
    device: str,
    progress: torch_child.Progress,
    expect: Sequence[str] = (),
) -> Audit:
    """The audit with what the first files are compared with a forward pass. Raises NotInspectableError for files of no target.

    `expect` are the layers that training takes the first ones of each file for, by their input.
    """
    files = [str(path.resolve()) for path in islice(files_in(directory), FILES)]
    request = {
        "verb": "compare",
        "target": torch_child.absolute(target),
        "device": device,
        "dtype": None,
        "files": files,
        "most_tokens": _MOST_TOKENS,
    }
    answer = torch_child.run(request, python=python, progress=progress)
    return msgspec.structs.replace(
        audit,
        facts=(*audit.facts, _fact(answer)),
        items=(*audit.items, *_items(answer, files), *_others(answer, files, expect)),
        took_s=audit.took_s,
    )


def _fact(answer: dict[str, Any]) -> AuditFact:
    slots, close = answer["files"][0], answer["close"]
    names = [_name(slot["layer"], answer["layers"]) if slot["error"] <= close else "none" for slot in slots]
    worst = max((slot["error"] for slot in slots if slot["error"] <= close), default=0.0)
    return AuditFact(name="layers", value=f"{', '.join(names)}; a fresh forward pass differs by {100 * worst:.2g} %")


def _name(layer: str, count: int) -> str:
    if layer == _NORMED:
        return "after the last norm"
    return f"output of the last layer, {layer}" if int(layer) == count else f"input of {layer}"


def _others(answer: dict[str, Any], files: Sequence[str], expect: Sequence[str]) -> list[AuditItem]:
    """Layers that are known, and are not those that were meant."""
    wrong = []
    for file, slots in zip(files, answer["files"], strict=True):
        first = slots[: len(expect)]
        if all(slot["error"] <= answer["close"] for slot in first) and [slot["layer"] for slot in first] != list(expect):
            wrong.append((Path(file).name, ", ".join(slot["layer"] for slot in first)))
    if not wrong:
        return []
    return [
        AuditItem(
            name="other layers than meant",
            severity="error",
            title=f"files have the inputs of layers {wrong[0][1]}, and training takes them for {', '.join(expect)}",
            count=len(wrong),
            of=len(files),
            places=tuple(name for name, _ in wrong),
            next_step="extract again, or train and serve with the layers that these are",
        )
    ]


def _items(answer: dict[str, Any], files: Sequence[str]) -> list[AuditItem]:
    strange = [
        Path(f).name for f, slots in zip(files, answer["files"], strict=True) if any(s["error"] > answer["close"] for s in slots)
    ]
    moved = [Path(f).name for f, slots in zip(files, answer["files"], strict=True) if any(s["moved"] for s in slots)]
    found = []
    if strange:
        found.append(
            AuditItem(
                name="unknown layer",
                severity="error",
                title="files have states that no layer of this target gives for their tokens",
                count=len(strange),
                of=len(files),
                places=tuple(strange),
                next_step="they are of another target or revision, or of other tokens: extract them again",
            )
        )
    if moved:
        found.append(
            AuditItem(
                name="moved states",
                severity="error",
                title="files have the states of the tokens beside their own",
                count=len(moved),
                of=len(files),
                places=tuple(moved),
                next_step="a drafter that is trained on them is fed otherwise when it is served: extract them again",
            )
        )
    return found
