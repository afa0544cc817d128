"""A frame in as many cells as there are: its function is told to the end, its path gives way."""

from __future__ import annotations

from gpudiag.model.stack import Frame
from gpudiag.render.canvas import Canvas, cells
from gpudiag.render.plain import clean, short_file, short_path


def place(frame: Frame, canvas: Canvas, room: int) -> str:
    """'function (path/file.py:12)'; with less and less of the path, at last the function alone."""
    function, file = clean(frame.function), short_file(clean(frame.file))
    whole = f"{function} ({file}:{frame.line})"
    if cells(whole) <= room:
        return whole
    line = f":{frame.line})"
    left = room - cells(function) - 2 - len(line)
    name = file.rsplit("/", 1)[-1]
    if cells(name) <= left:
        return f"{function} ({short_path(file, left, ellipsis=canvas.lines.ellipsis)}{line}"
    return canvas.fit(function, room)
