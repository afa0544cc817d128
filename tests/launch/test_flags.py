"""Options of an engine: asked of a real parser, remembered, and refused with the nearest name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpudiag.doctor import engine_flags
from gpudiag.doctor import probe as probes
from gpudiag.engines.words import taken_apart, value_of
from gpudiag.model.facts import Asked
from gpudiag.model.flags import FlagTable
from gpudiag.model.reading import Failed, Ok, Reading, Unavailable
from gpudiag.rules.launch.flag_unknown_to_version import nearest
from tests.doctor.machines import facts, ok, refused, result
from tests.launch.requests import table

ENGINES = ["sglang", "vllm"]
SOURCE = """
import argparse, sys
import sglang.options
print("hello from the engine")
def main():
    argparse.ArgumentParser().parse_args([])
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--kind", choices=["a", "b"])
    parser.add_argument("--flag", action="store_true")
    parser.add_argument("--many", nargs="*")
    parser.parse_args()
    raise SystemExit("the server was started")
main()
"""


def judged(engine: str, *words: str) -> list[str]:
    case = facts(Asked(engine=engine, arguments=words), flags=ok(table(engine)))  # type: ignore[arg-type]
    return [f.title for f in result("701", case).findings]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that starts like SGLang and has options of its own."""
    package = tmp_path / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "options.py").write_text("OPTIONS = 1\n")
    (package / "launch_server.py").write_text(SOURCE)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    return package


def read(tmp_path: Path) -> Reading[FlagTable]:
    return engine_flags.read(sys.executable, "sglang", cache=tmp_path / "cache")


@pytest.mark.usefixtures("engine")
def test_the_engines_own_parser_is_asked(tmp_path: Path) -> None:
    reading = read(tmp_path)
    assert isinstance(reading, Ok), reading
    found = reading.value
    assert {n for f in found.flags for n in f.names} == {"-h", "--help", "--model-path", "--model", "--kind", "--flag", "--many"}
    kind = found.find("--kind")
    assert kind is not None
    assert kind.choices == ("a", "b")
    assert [f.takes for n in ("--flag", "--many", "--model") if (f := found.find(n))] == ["none", "some", "one"]


def test_an_answer_is_remembered_until_a_file_of_the_engine_changes(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(read(tmp_path), Ok)
    with monkeypatch.context() as patched:
        patched.setattr(probes, "run", lambda *_, **__: Failed(error="asked again"))
        assert isinstance(read(tmp_path), Ok)
        (engine / "options.py").write_text("OPTIONS = 22\n")
        assert read(tmp_path) == Failed(error="asked again")
    (engine / "launch_server.py").write_text(SOURCE.replace("--kind", "--sort"))
    reading = read(tmp_path)
    assert isinstance(reading, Ok)
    assert reading.value.find("--kind") is None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit"),
        ("import nothing_of_that_name\n", "nothing_of_that_name"),
        ("pass\n", "without reading its arguments"),
    ],
)
def test_an_engine_that_cannot_be_asked_says_why(engine: Path, tmp_path: Path, source: str, said: str) -> None:
    (engine / "launch_server.py").write_text(source)
    reading = read(tmp_path)
    assert isinstance(reading, Failed)
    assert said in reading.error
    assert not list((tmp_path / "cache").glob("*")), "a failure is not remembered"


def test_an_engine_that_hangs_while_it_is_imported_is_given_up(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_flags, "LIMIT_S", 0.5)
    (engine / "options.py").write_text("import threading\nthreading.Event().wait()\n")
    reading = read(tmp_path)
    assert isinstance(reading, Failed)
    assert "within 0.5 s" in reading.error


@pytest.mark.usefixtures("engine")
def test_a_cache_that_was_tampered_with_is_not_believed(tmp_path: Path) -> None:
    assert isinstance(read(tmp_path), Ok)
    (kept,) = (tmp_path / "cache").glob("*.json")
    kept.write_bytes(b'{"table": {"engine": "sglang"}, "files": []}')
    assert isinstance(read(tmp_path), Ok)
    assert os.stat(tmp_path / "cache").st_mode & 0o077 == 0


@pytest.mark.usefixtures("engine")
def test_an_interpreter_of_somebody_else_is_asked_only_by_who_is_going_to_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "owner", lambda _: Unavailable(reason="it belongs to alice", help=""))
    assert isinstance(read(tmp_path), Unavailable)
    asked = engine_flags.read(sys.executable, "sglang", cache=tmp_path / "cache", own_rights=True)
    assert isinstance(asked, Ok)


@pytest.mark.usefixtures("engine")
def test_only_so_many_answers_are_kept(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for number in range(30):
        (tmp_path / "cache" / f"{number}.json").write_text("{}")
    assert isinstance(read(tmp_path), Ok)
    assert len(list((tmp_path / "cache").iterdir())) == 20
    assert isinstance(read(tmp_path), Ok)


@pytest.mark.parametrize("name", ENGINES)
def test_every_option_of_a_real_engine_is_known(name: str) -> None:
    assert [n for n in table(name).names if table(name).find(n) is None] == []
    assert len(table(name).flags) > 300


@pytest.mark.parametrize(
    ("engine_", "words"),
    [
        ("sglang", ("--tp", "2")),
        ("sglang", ("--model-path", "/m", "--watchdog-timeout=5.5", "--random-seed", "-1")),
        ("vllm", ("--tensor_parallel_size", "2")),
        ("vllm", ("--speculative-config.method", "eagle3", "--speculative-config.num_speculative_tokens", "3")),
        ("vllm", ("-tp", "2", "-O3")),
        ("vllm", ("--gpu-memory-util", "0.3")),
    ],
)
def test_what_the_parser_takes_is_not_refused(engine_: str, words: tuple[str, ...]) -> None:
    assert judged(engine_, *words) == []


@pytest.mark.parametrize(
    ("engine_", "words", "near"),
    [
        ("sglang", ("--watchdog-timout", "5"), "--watchdog-timeout"),
        ("sglang", ("--gpu-memory-utilization", "0.9"), "--mem-fraction-static"),
        ("sglang", ("--draft-model-path", "/d"), "--speculative-draft-model-path"),
        ("vllm", ("--tp", "2"), "--tensor-parallel-size"),
        ("vllm", ("--mem-fraction-static", "0.8"), "--gpu-memory-utilization"),
        ("vllm", ("--speculative-algorithm", "EAGLE3"), "--speculative-config"),
        ("vllm", ("--dtype", "bf16"), "bfloat16"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(engine_: str, words: tuple[str, ...], near: str) -> None:
    (title,) = judged(engine_, *words)
    assert f"nearest: {near}" in title
    assert VERSION[engine_] in title


VERSION = {"sglang": "SGLang 0.5.23", "vllm": "vLLM 0.32.0"}


@pytest.mark.parametrize("name", ENGINES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_one_wrong_letter_is_refused_and_the_right_name_is_near(name: str, data: st.DataObject) -> None:
    known = [n for n in table(name).names if n.startswith("--") and len(n) > 8]
    right = data.draw(st.sampled_from(known))
    place = data.draw(st.integers(3, len(right) - 1))
    wrong = right[:place] + data.draw(st.sampled_from("abcxyz")) + right[place + 1 :]
    assume(table(name).find(wrong) is None)
    (title,) = judged(name, wrong, "1")
    assert wrong[:60] in title
    assert nearest(wrong, table(name)), "something near is named"


@given(st.lists(st.text(alphabet="-=. abc0{}\"'\\\x1b\u202e", max_size=12), max_size=12))
@settings(deadline=None)
def test_no_command_line_breaks_the_reader(words: list[str]) -> None:
    for known in (table("vllm"), None):
        options = taken_apart(words, known)
        assert sum(1 + len(o.values) for o in options) <= len(words) + sum("=" in w for w in words)
    judged("vllm", *words)


def test_values_are_told_from_options() -> None:
    words = ("--a", "-1", "--b=--c", "--d", "--e", "x", "y")
    assert [(o.name, o.values) for o in taken_apart(words, None)] == [
        ("--a", ("-1",)),
        ("--b", ("--c",)),
        ("--d", ()),
        ("--e", ("x",)),
    ]
    assert value_of(taken_apart(("--port", "1", "--port", "2"), None), ("--port",)) == "2"


def test_a_secret_behind_a_misspelt_option_is_not_shown() -> None:
    case = facts(Asked(engine="vllm", arguments=("--api-kye=sk-secret-1234",)), flags=ok(table("vllm")))
    assert "sk-secret" not in repr(result("701", case))


def test_without_the_engines_options_the_check_is_unknown_not_ok() -> None:
    assert result("701", facts(Asked(engine="vllm", arguments=("--x",)), flags=refused())).status == "unknown"
    assert result("701", facts(Asked(engine="vllm"))).status == "skipped"
