"""Files, directories, streams and compressed logs; dumps that are no text."""

from __future__ import annotations

import gzip
import importlib
import io
import lzma
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag.logs.facts import HEAD_BYTES, TAIL_BYTES, read_facts, read_stream
from gpudiag.logs.pickles import NotPlainError, load_plain
from gpudiag.logs.read import MAX_LINE_BYTES
from gpudiag.logs.text import printable, segments
from tests.logs.support import DATA, raw, report_of

CAUSE = b'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in <module>\n    x()\nValueError: bad\n'


@pytest.mark.parametrize(("suffix", "packed"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_logs(tmp_path: Path, suffix: str, packed: object) -> None:
    path = tmp_path / f"server.log{suffix}"
    path.write_bytes(packed(raw("vllm_worker_syntax")))  # type: ignore[operator]
    assert report_of(read_facts([str(path)])).verdict.code == "GPD201"


def zstd(data: bytes) -> bytes:
    """One frame, by the library that this Python has."""
    try:
        compress = importlib.import_module("compression.zstd").compress
    except ImportError:
        compress = importlib.import_module("zstandard").compress
    packed = compress(data)
    assert isinstance(packed, bytes)
    return packed


def test_zstd(tmp_path: Path) -> None:
    """Two frames, as appending makes them: the first ends in the middle of a line."""
    data = raw("vllm_worker_syntax")
    path = tmp_path / "server.log.zst"
    path.write_bytes(zstd(data[: len(data) // 2]) + zstd(data[len(data) // 2 :]))
    facts = read_facts([str(path)])
    assert (facts.sources[0].bytes, facts.sources[0].notes) == (len(data), ())
    assert report_of(facts).verdict.code == "GPD201"


@pytest.mark.parametrize("broken", ["cut", "changed"])
def test_damaged_zstd_tells_what_it_holds_and_says_so(tmp_path: Path, broken: str) -> None:
    first, second = zstd(CAUSE), zstd(os.urandom(100_000))
    path = tmp_path / "server.log.zst"
    path.write_bytes(first + (second[: len(second) // 2] if broken == "cut" else second[:10] + b"\xff" * 100))
    facts = read_facts([str(path)])
    assert facts.tracebacks[0].headline == "ValueError: bad"
    assert facts.sources[0].notes[0].startswith("ends early")


def test_zstd_without_a_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.log.zst"
    path.write_bytes(zstd(CAUSE))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    facts = read_facts([str(path)])
    assert facts.unread[0][2] == "pip install 'gpudiag[zstd]'"


def test_a_truncated_archive_still_tells_what_it_holds(tmp_path: Path) -> None:
    whole = gzip.compress(CAUSE + os.urandom(200_000))
    path = tmp_path / "server.log.gz"
    path.write_bytes(whole[: len(whole) // 2])
    facts = read_facts([str(path)])
    assert "ends early" in facts.sources[0].notes[0]
    assert facts.tracebacks[0].headline == "ValueError: bad"


def test_a_directory_leaves_models_alone(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(CAUSE)
    (tmp_path / "model.safetensors").write_bytes(b"\x00\x01" + CAUSE)
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "link.log").symlink_to(tmp_path / "server.log")
    facts = read_facts([str(tmp_path)])
    assert [Path(s.name).name for s in facts.sources] == ["empty.log", "server.log"]
    assert len(facts.tracebacks) == 1


def test_what_cannot_be_opened_is_listed_with_what_to_type(tmp_path: Path) -> None:
    facts = read_facts([str(tmp_path / "nothing.log")])
    assert facts.unread[0][1].startswith("cannot open")
    assert facts.unread[0][2].startswith("ls -l")
    report = report_of(facts)
    assert report.verdict.status == "insufficient"
    assert report.not_read


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    fifo = tmp_path / "log.pipe"
    os.mkfifo(fifo)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    (tmp_path / "cause").write_bytes(CAUSE)
    with subprocess.Popen(["sh", "-c", f"cat {tmp_path}/cause > {fifo}"]) as writer:
        facts = read_facts([str(fifo)])
        assert writer.wait(timeout=20) == 0
    assert facts.tracebacks[0].headline == "ValueError: bad"


def test_line_numbers_hold_across_blocks() -> None:
    filler = b"(EngineCore pid=1) INFO 11-29 10:00:00 [a.py:1] nothing\n"
    count = (HEAD_BYTES + 3 * TAIL_BYTES) // len(filler)
    data = filler * count + CAUSE + filler * count
    facts = read_stream(io.BytesIO(data))
    assert facts.tracebacks[0].place.number == count + 1
    assert facts.sources[0].lines == 2 * count + 4


def test_a_line_of_100_mb_is_cut_and_said(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with path.open("wb") as out:
        out.write(CAUSE)
        for _ in range(100):
            out.write(b"x" * 1_000_000)
        out.write(b"\n" + CAUSE)
    facts = read_facts([str(path)])
    assert facts.sources[0].notes == ("1 line was too long and cut",)
    assert len(facts.tracebacks) == 2
    assert facts.tracebacks[1].place.number == 6
    assert MAX_LINE_BYTES < 1_000_000


def test_terminal_escapes_never_get_through() -> None:
    bomb = "\x1b]0;title\x07\x1b[31mred\x1b[0m\x1b[2J\x1bPq#0\x1b\\\u202eevil\x9b31m\x00\x08"
    assert printable(bomb) == "redevil31m"
    data = CAUSE.replace(b"bad", b"\x1b[31mb\x07a\x1b]8;;http://x\x1b\\d\x1b[0m")
    report = report_of(read_stream(io.BytesIO(data)))
    assert "\x1b" not in report.verdict.title
    assert "bad" in report.verdict.title


def test_progress_bars_are_taken_apart() -> None:
    line = (
        b"Loading:   0%| | 0/1 [00:00<?, ?it/s]\rLoading: 100% 1/1 "
        b"[00:00<00:00, 9.1it/s][2026-11-29 19:16:37 TP1] Load weight end."
    )
    assert segments(line)[-1] == "[2026-11-29 19:16:37 TP1] Load weight end."


def test_a_recorder_dump_is_read_without_running_it() -> None:
    value = load_plain((DATA / "armed_missing_rank" / "fr_dump_0").read_bytes())
    assert isinstance(value, dict)
    assert value["pg_status"]["0"]["last_enqueued_collective"] == 21


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, ("true",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_code_is_refused(protocol: int) -> None:
    with pytest.raises(NotPlainError):
        load_plain(pickle.dumps({"entries": [_Runs()]}, protocol))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_pickles_of_every_protocol(protocol: int) -> None:
    value = {
        "a": [1, -(2**70), 2.5, None, True],
        "b": ("x", b"y" if protocol > 2 else "y"),
        "c": {},
        "d": [[1, 2], (), (1,), (1, 2, 3)],
    }
    assert load_plain(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x02}", b"\x80\x02(((((", b"]" + b"2" * 1000 + b".", b"\x80\x02K\x01e."])
def test_broken_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(NotPlainError):
        load_plain(data)
