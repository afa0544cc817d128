"""Real hangs of two torch ranks over NCCL, each attached to from outside with nothing armed. Needs two GPUs and torch.

    python3 -m pytest tests/gpu/test_scenarios.py -n0

GPUDIAG_GPU_RECORDINGS names a directory for recordings, a table and the ranks' logs; GPUDIAG_GPU_REPEAT is how often each
scenario runs (default 1). test_kernel_dump needs cuda-gdb as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gpudiag.collect.nvml import has_driver

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REPEAT = int(os.environ.get("GPUDIAG_GPU_REPEAT", "1"))
RECORDINGS = os.environ.get("GPUDIAG_GPU_RECORDINGS", "")
CONFIRMED_RUN = 2
"""The third run takes a third look, five seconds after the first."""
SETTLE_S = 1.5
"""From the last word of the ranks until the collective is resident and utilisation shows it."""

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not has_driver() or find_spec("torch") is None, reason="needs two GPUs and torch"),
]

Expected: TypeAlias = dict[str, tuple[set[str | None], set[int]]]

EXPECTED: Expected = {
    "missing_rank": ({"GPD301"}, {1}),
    "other_operation": ({"GPD302"}, {0, 1}),
    "other_size": ({None, "GPD318"}, set()),
    "cross_order": ({"GPD303"}, {0, 1}),
    "killed": ({"GPD304"}, {1}),
    "stopped": ({"GPD305"}, {1}),
    "stale_lock": ({"GPD307"}, {1}),
    "lock_cycle": ({"GPD306"}, {1}),
    "never_joined": ({"GPD308"}, {1}),
    "stuck_kernel": ({"GPD311", None}, set()),
    "graph_missing": ({"GPD301"}, {1}),
    "busy": ({None}, set()),
    "idle": ({None, "GPD318"}, set()),
    "slow_compile": ({"GPD314"}, set()),
    "host_sleep": ({None}, set()),
    "send_without_recv": ({"GPD301", "GPD325"}, {1}),
    "other_kernel": ({"GPD310"}, {1}),
}
"""Codes that are right, None for no finding, and the ranks that must be named as culprits (empty: any)."""


ARMED: Expected = {
    "missing_rank": ({"GPD301"}, {1}),
    "other_operation": ({"GPD302"}, {0, 1}),
    "other_size": ({"GPD302"}, {0, 1}),
    "cross_order": ({"GPD303"}, {0, 1}),
    "send_without_recv": ({"GPD325"}, {0, 1}),
    "busy": ({None}, set()),
    "idle": ({None, "GPD318"}, set()),
}
"""The same for ranks that were started with a flight recorder to ask."""


DUMPED: dict[str, tuple[str, int, str | None]] = {
    "stuck_kernel": ("GPD310", 1, "wait_for_flag"),
    "other_kernel": ("GPD310", 1, "spin_kernel"),
    "missing_rank": ("GPD301", 1, None),
}
"""For ranks that were started so that they write a CUDA core dump: the code, the culprit, and how its kernel's name ends."""


def armed_for_dumps(directory: Path) -> dict[str, str]:
    """The variables that a launcher sets so that CUDA core dumps can be asked for. One takes about 120 MB."""
    skipped = ("nonrelocated_elf_images", "global_memory", "shared_memory", "local_memory", "constbank_memory", "abort")
    return {
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        "CUDA_COREDUMP_PIPE": str(directory / "pipe.%h.%p"),
        "CUDA_COREDUMP_FILE": str(directory / "core.%h.%p"),
        "CUDA_COREDUMP_GENERATION_FLAGS": ",".join(f"skip_{what}" for what in skipped),
    }


def armed(directory: Path) -> dict[str, str]:
    """The variables that a launcher sets so that torch's flight recorder can be asked for."""
    return {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_ENABLE_MONITORING": "1",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(directory / "fr_pipe_"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(directory / "fr_dump_"),
        "TORCH_FR_DUMP_TEMP_FILE": str(directory / "fr_dump_"),
    }


class Scene:
    """The ranks of one scenario: importing, then in it."""

    def __init__(self, name: str, directory: Path, port: int, *, arm: dict[str, str] | None = None) -> None:
        self.name = name
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        environ = {**os.environ, **(arm or {})}
        command = [sys.executable, str(HERE / "programs" / "launcher.py"), name, str(port), str(directory)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd="/", env=environ
        )

    def enter(self) -> None:
        self._hear(b"imported\n")
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()
        self._hear(b"ready\n")
        time.sleep(SETTLE_S)

    @property
    def rank0(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return min(int(pid) for pid in children.split())

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _hear(self, word: bytes) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == word, (self.directory / "rank0.log").read_text()[-2000:]


ORDER = [(name, run) for run in range(REPEAT) for name in EXPECTED]


class Scenes:
    """Starts the next scenario's ranks while one is being looked at: importing torch takes seconds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: dict[tuple[str, int], Scene] = {}
        self.rows: list[dict[str, Any]] = []

    def get(self, key: tuple[str, int]) -> Scene:
        scene = self._started.pop(key, None) or self._start(key)
        place = ORDER.index(key) + 1
        if place < len(ORDER):
            self._started[ORDER[place]] = self._start(ORDER[place])
        return scene

    def _start(self, key: tuple[str, int]) -> Scene:
        return Scene(key[0], self._directory / f"{key[0]}-{key[1]}", 29_500 + ORDER.index(key))

    def close(self) -> None:
        for scene in self._started.values():
            scene.close()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenes]:
    made = Scenes(Path(RECORDINGS) if RECORDINGS else tmp_path_factory.mktemp("scenes"))
    yield made
    made.close()
    if RECORDINGS:
        (Path(RECORDINGS) / "table.json").write_text(json.dumps(made.rows, indent=1))


def attach(pid: int, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "gpudiag", "attach", str(pid), "--once", "--json", *options]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=60)
    took_s = time.monotonic() - started
    assert done.stdout, done.stderr.decode()[-2000:]
    report: dict[str, Any] = json.loads(done.stdout)
    report["took_s"] = took_s
    return report


def row(name: str, run: int, how: str, report: dict[str, Any]) -> dict[str, Any]:
    verdict = report["verdict"]
    return {
        "scenario": name,
        "run": run,
        "how": how,
        "status": verdict["status"],
        "code": verdict["code"],
        "confidence": verdict["confidence"],
        "title": verdict["title"],
        "culprits": [c["rank"] for c in verdict["culprits"]],
        "attach_wall_s": round(report["took_s"], 2),
        "stopped_s": report["cost"]["stopped_s"],
    }


def is_right(shown: dict[str, Any], name: str, expected: Expected = EXPECTED) -> bool:
    codes, ranks = expected[name]
    return shown["code"] in codes and (not ranks or ranks <= set(shown["culprits"]))


@pytest.mark.parametrize(("name", "run"), ORDER)
def test_scenario(scenes: Scenes, name: str, run: int) -> None:
    scene = scenes.get((name, run))
    try:
        scene.enter()
        record = ("--record", str(scene.directory / f"{name}.gpudiag"))
        how = "confirmed" if run == CONFIRMED_RUN else "plain"
        plain = row(name, run, how, attach(scene.rank0, *record, *(["--confirm"] if how == "confirmed" else [])))
        scenes.rows.append(plain)
        if run == 0:
            without = row(name, run, "without counters", attach(scene.rank0, "--withhold", "gpm"))
            scenes.rows.append(without)
    finally:
        scene.close()
    assert plain["stopped_s"] == 0
    assert is_right(plain, name), plain
    if run == 0:
        assert is_right(without, name) or without["status"] == "insufficient", without


@pytest.mark.parametrize("name", ARMED)
@pytest.mark.parametrize("run", range(REPEAT))
def test_armed_scenario(scenes: Scenes, tmp_path: Path, name: str, run: int) -> None:
    directory = Path(RECORDINGS) / f"armed-{name}-{run}" if RECORDINGS else tmp_path
    scene = Scene(name, directory, 29_900 + REPEAT * list(ARMED).index(name) + run, arm=armed(directory))
    try:
        scene.enter()
        options = ("--flight-recorder", "--record", str(directory / f"armed_{name}.gpudiag"))
        shown = row(name, run, "armed", attach(scene.rank0, *options))
        scenes.rows.append(shown)
    finally:
        scene.close()
    assert shown["stopped_s"] == 0
    assert is_right(shown, name, ARMED), shown


@pytest.mark.parametrize("name", DUMPED)
def test_kernel_dump(scenes: Scenes, tmp_path: Path, name: str) -> None:
    """The dump names the kernel and its line; a rank that sleeps is no stuck kernel."""
    directory = Path(RECORDINGS) / f"dumped-{name}" if RECORDINGS else tmp_path
    scene = Scene(name, directory, 29_980 + list(DUMPED).index(name), arm=armed_for_dumps(tmp_path))
    code, rank, kernel = DUMPED[name]
    try:
        scene.enter()
        report = attach(scene.rank0, "--kernel-dump", "--yes", "--record", str(directory / f"dumped_{name}.gpudiag"))
        shown = row(name, 0, "kernel dump", report)
        scenes.rows.append(shown)
    finally:
        scene.close()
    assert not [n for n in report["not_read"] if n["source"] == "kernels"], report["not_read"]
    assert (shown["code"], shown["culprits"]) == (code, [rank]), shown
    (culprit,) = report["verdict"]["culprits"]
    assert kernel is None or culprit["kernel"].endswith(kernel), culprit
    if name == "stuck_kernel":
        assert (Path(culprit["file"]).suffix, culprit["line"] in (7, 8, 9)) == (".py", True), culprit
        assert shown["confidence"] == "strong"
