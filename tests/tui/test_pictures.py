"""The pictures in the README are what is drawn today. Draw them anew: python -m tests.tui.pictures"""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.support.checkout import ROOT
from tests.tui.pictures import DIRECTORY, PICTURES, draw


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_what_is_drawn(name: str) -> None:
    path = DIRECTORY / f"{name}.svg"
    drawn = draw(name)
    ET.fromstring(drawn)  # noqa: S314  our own text
    assert path.read_text(encoding="utf-8") == drawn
    assert len(drawn) < 16_000


def test_the_readme_shows_them_and_no_others() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (
        {p.stem for p in DIRECTORY.glob("*.svg")} == {name for name in PICTURES if f"docs/{name}.svg" in readme} == set(PICTURES)
    )
