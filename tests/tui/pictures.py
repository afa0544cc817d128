"""The pictures in the README, drawn from recordings: python -m tests.tui.pictures

test_pictures.py fails when they are not what is drawn today.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from xml.sax.saxutils import escape

from rich.style import Style

from gpudiag.render.canvas import Segment, cells
from gpudiag.tui.actions import ScreenName
from gpudiag.tui.bars import rule_row, screens_row, status_row, title_row
from gpudiag.tui.frame import Frame
from gpudiag.tui.lines import marked
from gpudiag.tui.state import State
from tests.support.checkout import ROOT
from tests.tui.samples import launched, recorded, state_with, widened

DIRECTORY = ROOT / "docs"
WIDTH: Final = 100
HEIGHT: Final = 26
_CELL_W, _CELL_H, _MARGIN = 8.4, 18, 12
_FONTS = "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace"
_GROUND, _TEXT, _DIM = "#1e1e22", "#d8d8d8", "#86868b"

PICTURES: Final[dict[str, tuple[Callable[[], Sequence[Frame]], ScreenName]]] = {
    "overview": (lambda: widened(8), "overview"),
    "stacks": (lambda: recorded("hangs/GPD307-stale-lock"), "stacks"),
    "launch": (lambda: [launched("weight-load", sentence="loading weights: 365 of 547 GB, 21.0 GB/s, 9 s left")], "launch"),
}


def draw(name: str) -> str:
    """One picture as SVG."""
    make, screen = PICTURES[name]
    state = state_with(*make(), live=True)
    state.show(screen)
    return svg(screen_of(state, WIDTH, HEIGHT))


def screen_of(state: State, width: int, height: int) -> list[Sequence[Segment]]:
    """All rows of a terminal of this size, as the application puts them there."""
    drawn = state.draw(width, height - 4)
    assert drawn is not None
    start = next((row for row, key in drawn.keys.items() if key == drawn.start), None)
    body = [marked(row, plain=False) if n == start else row for n, row in enumerate(drawn.rows)]
    shown = [*body[: height - 4], *([[]] * (height - 4 - len(body)))]
    below = [status_row(state, width, heard_at=0.0, now=0.4), screens_row(state, width)]
    return [title_row(state, width), rule_row(state, width), *shown, *below]


def svg(rows: Sequence[Sequence[Segment]]) -> str:
    """Rows of text and style as SVG: one text element a row, each run of cells at its column."""
    width, height = WIDTH * _CELL_W + 2 * _MARGIN, len(rows) * _CELL_H + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="{_FONTS}" font-size="14">',
        f'<rect width="100%" height="100%" rx="6" fill="{_GROUND}"/>',
    ]
    for number, row in enumerate(rows):
        column, spans = 0, []
        for text, style in row:
            if text.strip():
                x = _MARGIN + (column + cells(text) - cells(text.lstrip())) * _CELL_W
                length = cells(text.strip()) * _CELL_W
                spans.append(f'<tspan x="{x:.1f}" textLength="{length:.1f}"{_look(style)}>{escape(text.strip())}</tspan>')
            column += cells(text)
        if spans:
            y = _MARGIN + number * _CELL_H + 14
            lines.append(f'<text y="{y}" fill="{_TEXT}" xml:space="preserve">{"".join(spans)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _look(style: str) -> str:
    parsed = Style.parse(style) if style else Style.null()
    color = _DIM if parsed.dim else parsed.color.get_truecolor().hex if parsed.color else ""
    return (f' fill="{color}"' if color else "") + (' font-weight="bold"' if parsed.bold else "")


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name in PICTURES:
        (DIRECTORY / f"{name}.svg").write_text(draw(name), encoding="utf-8")


if __name__ == "__main__":
    main()
