"""gpudiag drafter measure as a user runs it: against recorded servers, by hand, from logs."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from gpudiag.cli import main
from tests.cli.programs import command, environment
from tests.cli.test_schema import problems
from tests.drafter.replayed import chain_vllm, serving

VLLM_LINE = (
    "(APIServer pid=1700) INFO 11-29 19:27:37 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 1.42, "
    "Accepted throughput: 51.03 tokens/s, Drafted throughput: 361.72 tokens/s, Accepted: 562 tokens, Drafted: 3984 tokens, "
    "Per-position acceptance rate: 0.257, 0.102, 0.064, Avg Draft acceptance rate: 14.1%\n"
)
SGLANG_LINES = (
    "[2026-11-29 19:17:58 TP0] Decode batch, #running-req: 1, #token: 81, token usage: 0.00, "
    "accept len: 1.57, accept rate: 0.19, cuda graph: False, gen throughput (token/s): 0.79, #queue-req: 0\n"
    "[2026-11-29 19:18:06 TP0] Decode batch, #running-req: 4, #token: 634, token usage: 0.00, "
    "accept len: 2.23, accept rate: 0.41, cuda graph: False, gen throughput (token/s): 288.86, #queue-req: 0\n"
)


def test_a_server_whose_drafter_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(chain_vllm(per_request=True)) as script:
        assert main.run(["drafter", "measure", script.url, "--requests", "8", "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    acceptance = report["measurement"]["acceptance"]
    assert (acceptance["length"]["value"], round(acceptance["rate"], 3)) == (2.0, 0.333)
    assert report["command"] == "drafter measure"
    assert "request 1 of 8" in err
    assert main.run(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert problems(report, schema, schema["$defs"]) == []


def test_a_page_fits_80_columns_in_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(chain_vllm(per_request=True)) as script:
        assert main.run(["drafter", "measure", script.url, "--ascii", "-v", "--requests", "16"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80
    assert "GPD608" in out
    assert "2.00 (2.00 to 2.00) tokens, 33.3 % of the drafts, 256 rounds" in out


def test_a_saved_report_serves_as_the_plain_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "plain.json"
    plain = chain_vllm(per_request=False)
    plain.metrics = tuple(b"\n".join(line for line in body.split(b"\n") if b"spec_decode" not in line) for body in plain.metrics)
    with serving(plain) as script:
        assert main.run(["drafter", "measure", script.url, "--requests", "6", "--json", "-o", str(saved)]) == 0
    with serving(chain_vllm(per_request=True)) as script:
        assert main.run(["drafter", "measure", script.url, "--requests", "6", "--plain", str(saved), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measurement"]
    # Both replay the same 31 tokens, 16 rounds against 31 steps.
    assert measured["cost"]["basis"] == "plain run"
    assert measured["plain"]["steps"] == 0


def test_a_plain_run_that_speculates_or_had_another_load_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "spec.json"
    with serving(chain_vllm(per_request=True)) as script:
        assert main.run(["drafter", "measure", script.url, "--requests", "4", "--json", "-o", str(saved)]) == 0
        assert main.run(["drafter", "measure", script.url, "--requests", "4", "--plain", str(saved)]) == 2
        assert "this server speculates" in capsys.readouterr().err
        assert (
            main.run(["drafter", "measure", script.url, "--requests", "4", "--concurrency", "2", "--simulated", str(saved)]) == 2
        )
        assert "at a time" in capsys.readouterr().err


def test_the_logs_of_both_engines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    log.write_text(VLLM_LINE)
    assert main.run(["drafter", "measure", "--log", str(log), "--json"]) == 0
    acceptance = json.loads(capsys.readouterr().out)["measurement"]["acceptance"]
    assert acceptance["rounds"] == 1328
    assert acceptance["length"]["value"] == pytest.approx(1.4232, abs=1e-4)
    assert [round(s["value"], 3) for s in acceptance["survival"]] == [0.257, 0.102, 0.064]
    log.write_text(SGLANG_LINES)
    assert main.run(["drafter", "measure", "--log", str(log), "--steps", "3", "--json"]) == 0
    acceptance = json.loads(capsys.readouterr().out)["measurement"]["acceptance"]
    assert acceptance["length"]["value"] == pytest.approx((1.57 + 4 * 2.23) / 5)
    assert acceptance["survival"] == []


def test_only_what_the_log_says_during_the_run_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    log.write_text(VLLM_LINE)
    with serving(chain_vllm(per_request=True)) as script:
        assert main.run(["drafter", "measure", script.url, "--requests", "4", "--log", str(log), "--json"]) == 0
    others = json.loads(capsys.readouterr().out)["measurement"]["others"]
    assert [o["source"] for o in others] == ["counters"]


def test_numbers_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["drafter", "measure", "--accept-rate", "0.15", "--steps", "3", "--speedup", "0.66"]
    assert main.run([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"]["code"] == "GPD612"
    assert round(report["measurement"]["cost"]["ratio"]["value"], 1) == 2.2
    assert main.run([*arguments, "--fail-on", "info"]) == 1
    capsys.readouterr()
    assert main.run([*arguments, "--format", "markdown"]) == 0
    page = capsys.readouterr().out
    assert "**GPD612 speculation-reading-inconclusive** (info, weak)" in page
    assert "\nbreak-even    2.20 per round, 39.9 % of the drafts, 60.6 % at each position\n" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to measure"),
        (["--accept-rate", "15", "--steps", "3"], "not in the range"),
        (["--accept-rate", "0.15"], "number of drafts a round"),
        (["--steps", "3"], "--accept-rate or as --accept-length"),
        (["--accept-length", "5", "--steps", "3"], "at most 4 tokens"),
        (["http://127.0.0.1:9", "--steps", "3"], "contradict each other"),
        (["--plain", "x.json"], "--plain needs a server"),
        (["http://127.0.0.1:9", "--plain", "./nowhere.json"], "nowhere.json: no such file"),
        (["ftp://x"], "no address of a server"),
        (["http://127.0.0.1:9", "--prompts", "nowhere.txt"], "no such file"),
        (["http://127.0.0.1:9", "--api-key-env", "NO_SUCH_KEY"], "holds no key"),
        (["http://127.0.0.1:9", "--other", "/dev/null"], "no report of drafter measure"),
        (["--log", "nowhere.log"], "nowhere.log"),
        (["--log", "/dev/null"], "device"),
    ],
)
def test_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["drafter", "measure", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["drafter", "measure", "127.0.0.1:9"]) == 3
    assert "nobody listens" in capsys.readouterr().err


def test_a_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-very-secret")
    with serving(chain_vllm(per_request=True)) as script:
        assert main.run(["drafter", "measure", script.url, "--requests", "2", "--api-key-env", "SERVER_KEY", "--json"]) == 0
    assert set(script.headers) == {"Bearer sk-very-secret"}
    out, err = capsys.readouterr()
    assert "very-secret" not in out + err


@pytest.mark.parametrize("concurrency", ["1", "3"])
def test_an_interrupt_hangs_up_and_ends_with_130(concurrency: str) -> None:
    script = chain_vllm(per_request=True)
    script.posts = {path: body.partition(b"data: [DONE]")[0] for path, body in script.posts.items()}
    # The first request is to warm up.
    script.hold_from = 1
    with serving(script):
        arguments = ("drafter", "measure", script.url, "--concurrency", concurrency, "--deadline", "60")
        program = subprocess.Popen(
            command(*arguments), env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert script.held.wait(60)
            program.send_signal(signal.SIGINT)
            _, err = program.communicate(timeout=30)
        finally:
            program.kill()
        assert program.returncode == 130
        assert script.hung_up.wait(10)
    assert "interrupted" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.txt", "def hello\n\nWrite a poem.\n"),
        (
            "b.jsonl",
            '{"prompt": "def hello"}\n{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}]}\n',
        ),
        ("c.jsonl", '"def hello"\n{"conversations": [{"from": "human", "value": "hi"}], "category": "chat"}\n'),
    ],
)
def test_prompts_of_a_file(name: str, body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / name
    file.write_text(body)
    with serving(chain_vllm(per_request=True)) as script:
        assert main.run(["drafter", "measure", script.url, "--prompts", str(file), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measurement"]["served"]["load"]["requests"] == 2
    turns = json.loads(script.sent[-1][1])["messages"]
    assert turns[-1]["role"] == "user"
    # What was asked stays out of the report.
    assert "hello" not in json.dumps(report)


@pytest.mark.parametrize("body", [b"", b"\n\n", b"{\n", b'{"x": 1}\n', b"\xff\xfe\n", b'{"prompt": ""}\n', b"[" * 100_000])
def test_prompts_that_are_none(body: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(body)
    code = main.run(["drafter", "measure", "127.0.0.1:9", "--prompts", str(file)])
    assert code in (2, 3)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_name_that_a_server_gives_itself_does_no_harm(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = chain_vllm(per_request=True)
    script.gets = {
        "/v1/models": b'{"data":[{"id":"\\u001b[2J\\u202e```\\n# x","owned_by":"vllm"}]}',
        "/version": b'{"version":"\\u001b]0;x\\u0007"}',
    }
    with serving(script):
        assert main.run(["drafter", "measure", script.url, "--requests", "3", "--format", form]) == 0
    out = capsys.readouterr().out
    assert not set(out) & {"\x1b", "\x07", "\u202e", "\r"}
    assert not any(line.startswith("# x") for line in out.splitlines())
