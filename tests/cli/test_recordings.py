"""A recording of a real hang gives the verdict of the live look, redacted or not."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudiag.cli.attach import look_options
from gpudiag.cli.target import by_pid
from gpudiag.demo.run import start
from gpudiag.demo.scenarios import SCENARIOS
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation
from gpudiag.session import pipeline
from gpudiag.session.load import load
from gpudiag.session.record import save


def observed(scenario: str, home: Path, *, samples: int = 2) -> Observation:
    """Two looks at a demo server that lives in a home directory, so that its paths hold a user's name."""
    home.mkdir(parents=True)
    with start(scenario, seed=7, directory=home) as server:
        server.wait_until_stuck()
        around = pipeline.scan()
        chosen = by_pid(around, server.root_pid)
        return pipeline.observe((chosen,), around, look_options(), samples=samples, interval_s=0.3, confirm=False)


def told(report: Report) -> dict[str, object]:
    """What a report says apart from names of files and hosts."""
    target, verdict = report.target, report.verdict
    assert target is not None
    return {
        "verdict": (verdict.status, verdict.code, verdict.severity, verdict.confidence),
        "culprits": [(c.pid, c.tid, c.rank, c.line, c.function, c.path is None) for c in verdict.culprits],
        "findings": [(f.code, f.confidence, len(f.evidence), len(f.consequences)) for f in report.findings],
        "workers": [(w.pid, w.role, w.rank, w.state, len(w.waits_for)) for w in target.workers],
        "target": (target.engine, target.root_pid, target.state),
        "waits": len(report.waits),
        "not_read": len(report.not_read),
    }


@pytest.fixture
def home() -> Iterator[Path]:
    """A user's home with a short path: the demo's sockets live below it, and a socket's path has at most 107 bytes."""
    top = Path(tempfile.mkdtemp(prefix="g"))
    yield top / "home" / "zebulon"
    shutil.rmtree(top)


@pytest.mark.parametrize("scenario", [s.name for s in SCENARIOS])
def test_a_recording_gives_the_live_verdict(scenario: str, home: Path, tmp_path: Path) -> None:
    observation = observed(scenario, home)
    (live,) = pipeline.reports_of(observation, command="attach")
    save(observation, tmp_path / "whole.gpudiag", redact=False)
    save(observation, tmp_path / "redacted.gpudiag")
    whole, redacted = load(tmp_path / "whole.gpudiag").observation, load(tmp_path / "redacted.gpudiag").observation
    assert whole == observation
    assert pipeline.reports_of(whole, command="attach") == [live]
    assert [told(r) for r in pipeline.reports_of(redacted, command="attach")] == [told(live)]
    data = msgspec.json.encode(redacted).decode()
    assert "zebulon" not in data
    assert f'"name":"{socket.gethostname()}"' not in data


def test_the_path_of_a_lock_keeps_one_name_in_a_redacted_recording(home: Path, tmp_path: Path) -> None:
    observation = observed("stale-lock", home)
    save(observation, tmp_path / "x.gpudiag")
    (report,) = pipeline.reports_of(load(tmp_path / "x.gpudiag").observation, command="explain")
    path = report.verdict.culprits[0].path
    assert path is not None
    assert "/home/user-" in path
    assert path in report.verdict.next_step
    assert any(w.holder == f"file:{path}" for w in report.waits)


def test_one_look_says_so(home: Path) -> None:
    observation = observed("rank-missing", home, samples=1)
    (report,) = pipeline.reports_of(observation, command="attach")
    assert not observation.has_change
    assert report.verdict.confidence in (None, "weak")
