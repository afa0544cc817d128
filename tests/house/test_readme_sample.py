"""The report that the README shows is what gpudiag draws today, from a recording of the demo.

Redraw it after a change of the layout: GPUDIAG_UPDATE_SNAPSHOTS=1 pytest tests/house/test_readme_sample.py
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gpudiag import __version__
from gpudiag.render.text import text
from gpudiag.session.load import load
from tests.support.diagnosing import judge

RECORDING = "tests/recordings/hangs/GPD307-stale-lock.gpudiag"
BEGIN, END = "<!-- sample -->\n```text\n", "```\n<!-- /sample -->"
LINES = 24


def sample(root: Path) -> str:
    """The upper part of the report, as an 80-column terminal shows it."""
    report = judge(load(root / RECORDING).observation)
    assert report.target is not None
    named = msgspec.structs.replace(report, gpudiag=__version__, target=msgspec.structs.replace(report.target, engine="demo"))
    drawn = text(named, width=80)
    return "".join(f"{line.rstrip()}\n" for line in drawn.splitlines()[:LINES])


def test_the_readme_shows_what_is_drawn(root: Path) -> None:
    readme = root / "README.md"
    before, begin, rest = readme.read_text().partition(BEGIN)
    shown, end, after = rest.partition(END)
    assert begin, "the README has lost the start of its sample"
    assert end, "the README has lost the end of its sample"
    if os.environ.get("GPUDIAG_UPDATE_SNAPSHOTS"):
        readme.write_text(before + BEGIN + sample(root) + END + after)
        return
    assert shown == sample(root)
