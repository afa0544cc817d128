"""Joins stacks that were read while the target was stopped with locals that were read while it was not.

Reading locals takes most of the time of a dump, and the target need not stand still for it.
"""

from __future__ import annotations

from msgspec.structs import replace

from gpudiag.model.stack import Frame, PyStack


def with_locals_of(stacks: tuple[PyStack, ...], others: tuple[PyStack, ...]) -> tuple[PyStack, ...]:
    """`stacks` with the locals that `others` have for the same thread, where its Python frames are the same in both."""
    by_tid = {stack.tid: stack for stack in others}
    return tuple(_joined(stack, by_tid.get(stack.tid)) for stack in stacks)


def _joined(stack: PyStack, other: PyStack | None) -> PyStack:
    if other is None or [f.where for f in stack.frames if not f.native] != [f.where for f in other.frames]:
        return stack
    rest = iter(other.frames)
    return replace(stack, frames=tuple(f if f.native else _with_locals(f, next(rest)) for f in stack.frames))


def _with_locals(frame: Frame, other: Frame) -> Frame:
    return replace(frame, locals=other.locals, values=other.values)
