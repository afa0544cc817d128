"""A table of compiled libraries: which architectures each holds code for, and what that means for a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpudiag.model.library import Library
from gpudiag.render.canvas import Canvas, pad
from gpudiag.render.plain import ascii_only, clean, short_file, short_path
from gpudiag.render.style import BOLD, DIM, GREEN, ORANGE, PLAIN, VERMILION, Look
from gpudiag.rules.kernels.backends import backend
from gpudiag.rules.kernels.runs_on import Coverage, Way, capability_name, coverage

WAYS: Final[dict[Way, Look]] = {
    "native": Look(glyph="✓", ascii="+", word="native", color=GREEN),
    "jit": Look(glyph="»", ascii="%", word="PTX only", color=ORANGE),
    "none": Look(glyph="✗", ascii="X", word="no code", color=VERMILION),
}
_MIB: Final = 1 << 20


def text(
    libraries: Sequence[Library], capabilities: Sequence[int], *, width: int = 80, color: bool = False, plain: bool = False
) -> str:
    """One library a paragraph: path, size and targets; for each capability how it runs, and on what the engine uses it for."""
    canvas = Canvas(width, color=color, plain=plain)
    for library in libraries:
        _library(library, capabilities, canvas)
    return canvas.text()


def _library(library: Library, capabilities: Sequence[int], canvas: Canvas) -> None:
    size = f"{library.size_bytes / _MIB:.1f} MiB"
    name = short_path(short_file(_harmless(library.path, canvas)), canvas.width - len(size) - 2, ellipsis=canvas.lines.ellipsis)
    canvas.ends([(name, BOLD)], (size, DIM))
    targets = ", ".join(f"{i.target.name} x{i.count}" for i in library.images) or "no GPU code but what device linking leaves"
    canvas.paragraph([("  ", PLAIN)], targets, DIM)
    for capability in capabilities if library.units else ():
        covered = coverage(library, capability)
        look = WAYS[covered.way]
        head = f"  {look.mark(plain=canvas.plain)} {pad(capability_name(capability), 4)} "
        canvas.paragraph([(head, look.color)], _words(library, covered))
    for note in library.notes:
        canvas.paragraph([("  note  ", DIM)], note, DIM)


def _words(library: Library, covered: Coverage) -> str:
    """'native: sm_120a, 35 of 35 units; SGLang's basic kernels'."""
    units = library.fatbins
    known = backend(library.path)
    role = f"; {known.role}" if known else ""
    kind = "cubin" if covered.way == "native" else "ptx"
    names = ", ".join(t.name for t in covered.targets if t.kind == kind)
    match covered.way:
        case "native":
            rest = f", PTX for {covered.jit}" if covered.jit else ""
            return f"native: {names}, {covered.native} of {units} units{rest}{role}"
        case "jit":
            return f"compiled by the driver at first use: {names}, {covered.jit} of {units} units{role}"
        case _:
            instead = f": {known.instead}" if known else ""
            return f"no code for it{role}{instead}"


def _harmless(path: str, canvas: Canvas) -> str:
    cleaned = clean(path)
    return ascii_only(cleaned) if canvas.plain else cleaned
