"""Phases from what real servers logged, their progress bars, and the times of the last run."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpudiag.launch import history
from gpudiag.launch.log_tail import STEP_BYTES, LogTail
from gpudiag.launch.phases import Fraction, PhaseClock
from gpudiag.launch.status import compiling, part
from tests.launch.launching import plan_of
from tests.logs.support import DATA

SHARDS = b"\rLoading safetensors checkpoint shards:  50% Completed | 4/8 [00:03<00:03,  1.20it/s]\r"
CAPTURE = b"\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):  34%|###4      | 12/35 [00:02<00:04,  5.1it/s]\r"


@pytest.mark.parametrize(
    ("log", "phases"),
    [
        ("vllm_start.log.gz", ["import", "distributed-init", "weight-load", "kv-allocation", "warm-up"]),
        ("sglang_start.log.gz", ["import", "distributed-init", "weight-load", "kv-allocation", "warm-up"]),
    ],
)
def test_a_real_start(log: str, phases: list[str]) -> None:
    clock = PhaseClock(0.0, {"weight-load": 7.5})
    seen = ["import"]
    for at, line in enumerate(gzip.decompress((DATA / log).read_bytes()).splitlines(keepends=True)):
        clock.read(line, float(at))
        if clock.current != seen[-1]:
            seen.append(clock.current)
    assert seen == phases
    assert clock.listening
    assert clock.enter("ready", 1e6)
    every = clock.phases({})
    assert [p.phase for p in every] == [*phases, "ready"]
    assert [p.last_run_s for p in every if p.phase == "weight-load"] == [7.5]
    assert all(p.ended_at is not None and p.ended_at >= p.began_at for p in every)
    assert set(clock.durations()) == set(phases)


def test_a_phase_is_not_entered_twice() -> None:
    """With EAGLE-3 SGLang loads the drafter's weights when the target's KV cache is there."""
    clock = PhaseClock(0.0, {})
    for at, text in enumerate(
        (b"Load weight begin. avail mem=3", b"Load weight end. elapsed=1", b"Load weight begin. avail mem=2")
    ):
        clock.read(b"[2026-11-29 18:41:52 TP0] " + text + b"\n", float(at))
    assert clock.current == "kv-allocation"


def test_progress_bars() -> None:
    clock = PhaseClock(0.0, {})
    clock.read(b"(Worker_TP0 pid=7) INFO 11-29 18:28:29 [a.py:1] Starting to load model x...\n" + SHARDS, 1.0)
    assert (clock.current, clock.shards) == ("weight-load", Fraction(done=4, total=8))
    clock.read(CAPTURE, 2.0)
    assert (clock.current, clock.graphs) == ("graph-capture", Fraction(done=12, total=35))


def test_the_times_of_a_run_are_there_for_the_next_of_the_same_server(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "run", port=1)
    path = history.path_for(plan, tmp_path)
    assert history.load(path) == {}
    history.save(path, {"import": 3.0, "weight-load": 5.0})
    history.save(path, {"import": 4.0})
    assert history.load(path) == {"import": 4.0, "weight-load": 5.0}
    assert history.path_for(plan_of(tmp_path / "other", port=2), tmp_path) == path
    path.write_text("{")
    assert history.load(path) == {}


def test_a_log_is_followed_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LogTail(path)
    assert tail.read() == b""
    with open(path, "ab", buffering=0) as log:
        log.write(b"one\ntw")
        assert tail.read() == b"one\n"
        log.write(b"o\n 10%\r 20%\r 3")
        assert tail.read() == b"two\n 10%\r 20%\r"
    path.write_bytes(b"new\n")
    assert tail.read() == b"new\n"
    tail.close()


def test_a_flood_is_followed_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 99 + b"\n" + b"y" * (12 << 20) + b"\nlast\n")
    tail = LogTail(path)
    first = tail.read()
    assert len(first) <= STEP_BYTES
    assert first.endswith(b"\nlast\n")
    tail.close()


def test_compilers_that_nobody_logs_are_counted() -> None:
    assert compiling([]) is None
    titles = ["/usr/local/cuda/bin/../nvvm/bin/cicc --c++17", "/usr/local/cuda/nvvm/bin/cicc -arch", "ninja -v -j 16"]
    assert compiling(titles) == "compiling: 2 cicc, 1 ninja"


@pytest.mark.parametrize(
    ("done", "total", "said"),
    [(312e9, 547e9, "312 of 547 GB"), (900e3, 9.4e6, "900 kB of 9.4 MB"), (0.0, 9.4e6, "0 B of 9.4 MB")],
)
def test_parts_have_the_unit_that_fits_them(done: float, total: float, said: str) -> None:
    assert part(done, total) == said
