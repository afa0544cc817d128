"""Two hundred secrets are planted; none of them may be in anything that gpudiag writes, and the list of what went is whole."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from gpudiag.cli.doctor import _save
from gpudiag.cli.output import Format, Output, emit
from gpudiag.launch.server_process import manifest_of
from gpudiag.model.log import ServerLog
from gpudiag.model.report import Report
from gpudiag.model.run import LaunchPlan, RunManifest, Setting
from gpudiag.rules.log_verdict import explain_log
from gpudiag.rules.preflight import judge
from gpudiag.rules.preflight import registry as preflight
from gpudiag.session.pipeline import reports_of
from gpudiag.session.record import save
from gpudiag.session.redact import NEVER_SHOWN, RedactionReport, Redactor
from gpudiag.session.secret import SECRET_VARIABLE
from tests.redaction import carriers
from tests.redaction.planted import Plant, plants

SEEDS = (1, 2, 3)
FORMATS: tuple[Format, ...] = ("json", "markdown", "text")
PLACEHOLDER = re.compile(r"(?:host|user|ip|secret|env|prompt)-\d+")


@pytest.fixture(params=SEEDS)
def planted(request: pytest.FixtureRequest) -> list[Plant]:
    return plants(request.param)


def leaked(text: str, planted: list[Plant]) -> list[Plant]:
    return [p for p in planted if any(mark in text for mark in p.marks)]


def unfolded(text: str) -> str:
    """Text as it was before it was broken into lines for a page."""
    return re.sub(r"\s+", " ", text)


def recording(planted: list[Plant], path: Path) -> RedactionReport:
    log = ServerLog(root_pid=4262, facts=carriers.log(planted))
    return save(carriers.observation(planted), path, logs=[log])


def members(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name).decode() for name in bundle.namelist()}


def reports(planted: list[Plant]) -> dict[str, Report]:
    """One that says everything, and those that rules make of a log and of a server."""
    (seen,) = reports_of(carriers.observation(planted), command="attach")
    logged = explain_log(carriers.log(planted), version="0", host="here", generated_at="2026-11-29T00:00:00+00:00")
    return {"everything": carriers.report(planted), "server": seen, "log": logged}


def test_there_are_two_hundred_and_the_carriers_hold_them(planted: list[Plant]) -> None:
    assert len(planted) >= 200
    assert {kind: n >= 20 for kind, n in Counter(p.kind for p in planted).items()} == dict.fromkeys(
        ("token", "prompt", "host", "user", "address"), True
    )
    for carrier in (carriers.observation, carriers.report):
        kept = msgspec.json.encode(carrier(planted)).decode()
        assert len([p for p in planted if p.value in kept]) >= len(planted) - 1, carrier


def test_none_is_in_a_recording(planted: list[Plant], tmp_path: Path) -> None:
    recording(planted, tmp_path / "x.gpudiag")
    for name, text in members(tmp_path / "x.gpudiag").items():
        assert not leaked(text, planted), name


@pytest.mark.parametrize("form", FORMATS)
def test_none_is_in_a_report_that_is_written(planted: list[Plant], form: Format, tmp_path: Path) -> None:
    for name, report in reports(planted).items():
        emit([report], Output(format=form, file=tmp_path / name))
        text = (tmp_path / name).read_text()
        assert not leaked(text, planted), name
        assert not leaked(unfolded(text), planted), name


@pytest.mark.parametrize("form", FORMATS)
def test_no_token_and_no_prompt_is_shown_on_a_screen(
    planted: list[Plant], form: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = [p for p in planted if p.kind in ("token", "prompt") and p.slot != "environ"]
    for name, report in reports(planted).items():
        emit([report], Output(format=form))
        text = capsys.readouterr().out
        assert not leaked(text, hidden), name
        assert not leaked(unfolded(text), hidden), name


def test_none_is_in_what_doctor_saves_and_says(planted: list[Plant], tmp_path: Path) -> None:
    facts = carriers.machine(planted)
    _save(facts, tmp_path / "facts.json", redact=True)
    assert not leaked((tmp_path / "facts.json").read_text(), planted)
    results = judge.judge(facts, preflight.CHECKS)
    report = judge.report(facts, results, command="doctor", version="0")
    assert not leaked(msgspec.json.encode(Redactor().apply(report)).decode(), planted)


def launched(planted: list[Plant]) -> RunManifest:
    """What a launcher keeps of a start: the command line, what it set and why."""
    environment = tuple((p.name, p.text) for p in planted if p.slot == "environ")
    words = tuple(word for p in planted if p.slot == "arguments" for word in p.text.split(" "))
    settings = tuple(Setting(name=n, value=v, why="asked for", source="command line") for n, v in environment)
    flags = tuple(
        Setting(name=p.text.split(" ")[0], value=p.value, why="asked for", source="command line")
        for p in planted
        if p.slot == "arguments" and p.kind == "token" and " " in p.text and not p.text.startswith(("-e", "--otlp"))
    )
    plan = LaunchPlan(
        run_id="r",
        run_directory="/tmp/r",
        engine="vllm",
        version="0.33.0",
        python="/opt/venv/bin/python",
        argv=("vllm", "serve", *words),
        environment=environment,
        settings=(*settings, *flags),
        profile=None,
        model="/models/m",
        drafter=None,
        host="127.0.0.1",
        port=8000,
        tensor_parallel=1,
        notes=tuple(carriers.texts(planted)),
    )
    return RunManifest(
        run_id="r", gpudiag="0", host="here", started_at=1.0, supervisor_pid=1, server_pid=2, plan=plan, log="server.log"
    )


def test_no_token_is_kept_of_a_start(planted: list[Plant]) -> None:
    """What lies in the run directory stays on the machine, and still no key is written down."""
    names = {name for name, _ in launched(planted).plan.environment if SECRET_VARIABLE.search(name)}
    hidden = [
        p
        for p in planted
        if p.kind == "token" and (p.name in names or (p.slot == "arguments" and p.text.startswith(("--api", "--hf", "--admin"))))
    ]
    assert len(hidden) > 10
    kept = msgspec.json.encode(manifest_of(launched(planted).plan)).decode()
    assert not leaked(kept, hidden)


def test_none_is_in_what_is_shared_of_a_start(planted: list[Plant]) -> None:
    shown = Redactor().apply(launched(planted))
    assert not leaked(msgspec.json.encode(shown).decode(), planted)
    assert shown.plan.argv[:2] == ("vllm", "serve")


def test_the_list_of_what_was_taken_out_is_whole(planted: list[Plant], tmp_path: Path) -> None:
    """Each placeholder in the file is listed, with its number of places, and nothing is listed that is not there."""
    report = recording(planted, tmp_path / "x.gpudiag")
    kept = members(tmp_path / "x.gpudiag")
    told = msgspec.json.decode(kept["redactions.json"], type=RedactionReport)
    assert told == report
    text = "\n".join(data for name, data in kept.items() if name not in ("redactions.json", "manifest.json"))
    assert {item.placeholder: len(re.findall(rf"{item.placeholder}(?!\d)", text)) for item in report.items} == {
        item.placeholder: item.count for item in report.items
    }
    before = msgspec.json.encode(carriers.observation(planted)).decode()
    assert set(PLACEHOLDER.findall(text)) - set(PLACEHOLDER.findall(before)) <= {item.placeholder for item in report.items}
    assert all(item.where for item in report.items)


def test_the_screen_still_names_the_machine() -> None:
    told = carriers.report(plants(1))
    shown = Redactor(NEVER_SHOWN).apply(told)
    assert shown.host == told.host
    assert shown.target == told.target
