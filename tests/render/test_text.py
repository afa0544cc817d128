"""What a report looks like on a terminal. The pictures are in snapshots/; GPUDIAG_UPDATE_SNAPSHOTS=1 draws them anew."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudiag.model.report import Report, ServerState
from gpudiag.render.canvas import cells
from gpudiag.render.json import dumps
from gpudiag.render.markdown import LIMIT, markdown
from gpudiag.render.style import CONFIDENCES, SERVER_STATES, SEVERITIES, WORKER_STATES
from gpudiag.render.text import text
from tests.render import samples
from tests.render.samples import SAMPLES

SNAPSHOTS = Path(__file__).with_name("snapshots")
SGR = re.compile(r"\x1b\[[0-9;]*m")


def draw(make: Callable[[], Report], **how: Any) -> str:
    return text(make(), **how)


def page(make: Callable[[], Report]) -> str:
    return markdown(make())


DRAWN: dict[str, Callable[[], str]] = {
    **{f"{name}.txt": partial(draw, make) for name, make in SAMPLES.items()},
    **{f"{name}.ascii.txt": partial(draw, SAMPLES[name], ascii=True) for name in ("stale-lock-4", "lock-cycle-4", "hostile")},
    "stale-lock-4.wide.txt": partial(draw, SAMPLES["stale-lock-4"], width=120),
    "stopped-8.narrow.txt": partial(draw, SAMPLES["stopped-8"], width=60),
    "stale-lock-4.color.txt": partial(draw, SAMPLES["stale-lock-4"], color=True),
    **{f"{name}.md": partial(page, SAMPLES[name]) for name in ("stale-lock-4", "stopped-64", "insufficient", "hostile")},
    "stale-lock-4.json": lambda: dumps(SAMPLES["stale-lock-4"](), indent=2) + "\n",
}


@pytest.mark.parametrize("name", DRAWN)
def test_it_looks_as_it_did(name: str) -> None:
    path = SNAPSHOTS / name
    drawn = DRAWN[name]()
    if os.environ.get("GPUDIAG_UPDATE_SNAPSHOTS"):
        path.write_text(drawn, encoding="utf-8")
    assert drawn == path.read_text(encoding="utf-8")


def test_no_picture_is_left_over() -> None:
    assert {p.name for p in SNAPSHOTS.iterdir()} == set(DRAWN)


def is_whole_command(line: str) -> bool:
    """A line that may be longer than the screen: one command or word that must stay in one piece."""
    return len(re.findall(r"`[^`]*`|\S+", line)) == 1


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("width", [60, 72, 79, 80, 100, 140])
def test_lines_fit(name: str, width: int) -> None:
    for line in text(SAMPLES[name](), width=width).splitlines():
        assert cells(line) <= width or is_whole_command(line), line


def test_at_80_columns_everything_of_the_samples_fits() -> None:
    assert max(cells(line) for make in SAMPLES.values() for line in text(make()).splitlines()) <= 80


@pytest.mark.parametrize("name", SAMPLES)
def test_lines_have_no_blanks_at_their_end(name: str) -> None:
    for color in (False, True):
        assert not [line for line in SGR.sub("", text(SAMPLES[name](), color=color)).splitlines() if line != line.rstrip()]


@pytest.mark.parametrize("name", SAMPLES)
def test_colour_adds_nothing_but_colour(name: str) -> None:
    assert SGR.sub("", text(SAMPLES[name](), color=True)) == text(SAMPLES[name]())


def test_ascii_is_ascii() -> None:
    for make in SAMPLES.values():
        assert text(make(), ascii=True).isascii()


def test_a_screen_of_24_lines_shows_8_ranks() -> None:
    lines = text(SAMPLES["stopped-8"]()).splitlines()
    table = next(i for i, line in enumerate(lines) if line.startswith("  rank "))
    end = next(i for i, line in enumerate(lines[table:], table) if line.startswith("─"))
    assert end <= 24


def test_64_ranks_share_a_row_but_for_the_culprit() -> None:
    lines = text(SAMPLES["stopped-64"]()).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("✗ ") and "GPD" not in line] == ["33"]
    assert sum("0-32, 34-63" in line and "63 pids" in line for line in lines) == 1
    assert len(lines) < 50


def test_states_differ_without_colour() -> None:
    for looks in (WORKER_STATES, SERVER_STATES, SEVERITIES):
        for plain in (False, True):
            assert len({(look.mark(plain=plain), look.word) for look in looks.values()}) == len(looks)
            assert all(cells(look.mark(plain=plain)) == 1 for look in looks.values())
    assert set(SERVER_STATES) == set(get_args(ServerState))
    assert set(CONFIDENCES) == {"proven", "strong", "weak"}


def test_a_state_that_is_not_known_keeps_its_word() -> None:
    report = samples.report(status="healthy", title="x", workers=(samples.worker(1, 0, "napping", None),))
    assert "? napping" in text(report)


def test_no_target_is_no_table() -> None:
    report = msgspec.structs.replace(SAMPLES["healthy"](), target=None)
    assert "  rank  pid" in text(SAMPLES["healthy"]())
    assert "  rank  pid" not in text(report)
    assert "| rank" not in markdown(report)


ANY_TEXT = st.text(alphabet=st.characters(), max_size=80) | st.sampled_from(
    [
        samples.HOSTILE,
        "\x1b[31m",
        "\x9b2J",
        "\ud800",
        "日本語のパス" * 20,
        "a" * 5000,
        "/" * 300,
        "e" + "\u0301" * 50,
        "`" * 7,
        "\n\n",
        " ",
    ]
)


@st.composite
def any_report(draw: st.DrawFn) -> Report:
    """The hostile sample with other texts in every place that takes any text."""
    plain = msgspec.to_builtins(samples.hostile())
    fixed = {"schema", "status", "severity", "confidence", "engine", "state", "kind", "need", "code"}

    def other(node: object, key: str = "") -> object:
        if isinstance(node, dict):
            return {k: other(v, k) for k, v in node.items()}
        if isinstance(node, list | tuple):
            return [other(v, key) for v in node]
        return draw(ANY_TEXT) if isinstance(node, str) and key not in fixed and samples.HOSTILE in node else node

    plain["target"]["workers"][0]["state"] = "lock"
    return msgspec.convert(other(plain), Report)


def harmless(character: str) -> bool:
    return character == "\n" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@settings(max_examples=60, deadline=None)
@given(report=any_report(), width=st.integers(60, 140), color=st.booleans(), plain=st.booleans())
def test_nothing_of_a_target_reaches_the_terminal_raw(report: Report, width: int, color: bool, plain: bool) -> None:
    drawn = text(report, width=width, color=color, ascii=plain)
    drawn = SGR.sub("", drawn) if color else drawn
    assert not [c for c in drawn if not harmless(c)]
    assert not plain or drawn.isascii()


@settings(max_examples=60, deadline=None)
@given(report=any_report())
def test_nothing_of_a_target_is_markdown(report: Report) -> None:
    page = markdown(report)
    assert len(page) <= LIMIT
    assert not [c for c in page if not harmless(c)]
    outside = outside_of_code(page)
    assert set(re.findall(r"<[^>]*>?", outside)) <= {"<details>", "<summary>", "</summary>", "</details>", "<!-- -->"}
    assert "@" not in outside.replace("@<!-- -->", "")
    assert outside.count("<details>") == outside.count("</details>")


def outside_of_code(page: str) -> str:
    """Markdown without its code: blocks by their fences, then spans. Escaped backticks open nothing."""
    kept, fence = [], ""
    for line in page.split("\n"):
        mark = re.match(r"\s*(`{3,})(text)?$", line)
        if mark and not fence and mark[2]:
            fence = mark[1]
        elif mark and mark[1] == fence and not mark[2]:
            fence = ""
        elif not fence:
            kept.append(re.sub(r"\\.", "", re.sub(r"(?<!\\)`[^`]*`", "", line)))
    assert not fence
    return "\n".join(kept)


def test_rows_of_a_markdown_table_have_as_many_cells_as_its_head() -> None:
    for make in SAMPLES.values():
        rows = [line for line in markdown(make()).splitlines() if line.startswith("|")]
        widths = {len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", row))) for row in rows}
        assert widths <= {5, 7}


def test_what_does_not_fit_into_a_bug_report_is_counted() -> None:
    many = tuple(samples.evidence("python-stack", f"claim {n}", "x" * 900) for n in range(200))
    page = markdown(samples.report(samples.finding("GPD301", "rank-missing-at-collective", "t", *many, steps=("look",))))
    assert len(page) <= LIMIT
    left_out = re.search(r"left out: (\d+) x evidence of GPD301", page)
    assert left_out is not None
    assert int(left_out[1]) + page.count("- python-stack: claim") == 200
    assert page.rstrip().endswith("`--json`._")
    assert page.count("<details>") == page.count("</details>")
