"""The pages: a list without a code, one page with it, drawn only on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudiag.cli import main
from gpudiag.cli.runbook import front_matter, summary

PAGE = """---
code: GPD307
name: stale-file-lock-wait
severity: error
since: "0.1"
engines: [sglang, vllm]
---

# A rank waits for a lock file that nobody holds

## What it means

A build was **killed**.

```bash
rm /path/lock
```
"""


@pytest.fixture(autouse=True)
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pages, and a file that is none."""
    (tmp_path / "GPD307-stale-file-lock-wait.md").write_text(PAGE)
    (tmp_path / "GPD318-idle-not-hung.md").write_text(PAGE.replace("307", "318").replace("stale-file-lock-wait", "idle-not-hung"))
    (tmp_path / "notes.md").write_text("no page")
    monkeypatch.setattr("gpudiag.assets.assets", lambda kind: tuple(sorted(tmp_path.glob("*.md"))) if kind == "runbooks" else ())


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["runbook"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split(None, 3) == ["GPD307", "error", "stale-file-lock-wait", "A rank waits for a lock file that nobody holds"]
    assert second.startswith("GPD318")


@pytest.mark.parametrize("code", ["307", "GPD307", "gpd307"])
def test_a_page_in_a_pipe_is_as_it_was_written(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["runbook", code]) == 0
    assert capsys.readouterr().out == PAGE


def test_a_page_on_a_terminal_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["runbook", "307", "--color", "always"]) == 0
    out = capsys.readouterr().out
    assert "\x1b[1m" in out
    assert "code: GPD307" not in out
    assert "rm /path/lock" in out


@pytest.mark.parametrize("code", ["999", "30", "GPD", "../../etc/passwd", "307 "])
def test_there_is_no_such_page(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["runbook", code]) == 2
    assert "there is no page for" in capsys.readouterr().err


def test_front_matter() -> None:
    fields, body = front_matter(PAGE)
    assert fields["code"] == "GPD307"
    assert fields["since"] == "0.1"
    assert body.startswith("# A rank waits")
    assert front_matter("# only\n") == ({}, "# only\n")
    assert front_matter("---\ncode: x\n") == ({}, "---\ncode: x\n")
    assert front_matter("") == ({}, "")
    assert summary("---\ncode: GPD1\ntitle: own\n---\n# other\n").endswith("own")
