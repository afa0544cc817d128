"""gpudiag explain on what is no log or recording: one line, in time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpudiag.cli import main
from gpudiag.logs import read
from gpudiag.logs.read import UnreadableError, open_log
from tests.cli import programs
from tests.logs.support import DATA

FAULT = DATA / "vllm_raise_rank1.log.gz"


@pytest.mark.parametrize("file", ["/dev/zero", "/dev/null", "/proc/kmsg", "/proc/self/mem", "/proc/self/status"])
def test_what_may_never_end_is_refused(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", str(FAULT), file]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"gpudiag: error: cannot read {file}: it is ")


def test_a_device_as_standard_input_is_refused() -> None:
    with open("/dev/zero", "rb") as zero:
        done = subprocess.run(
            programs.command("explain", "-"), stdin=zero, env=programs.environment(), capture_output=True, text=True, timeout=30
        )
    assert done.returncode == 2
    assert done.stderr.startswith("gpudiag: error: cannot read standard input: it is a device")


def test_a_file_of_a_process_is_read(tmp_path: Path) -> None:
    """/proc/PID/fd/N is the file that it leads to."""
    (tmp_path / "a.log").write_bytes(b"hello\n")
    with (tmp_path / "a.log").open("rb") as file, open_log(f"/proc/self/fd/{file.fileno()}") as stream:
        assert stream.read() == b"hello\n"


def test_a_fifo_that_nobody_writes_to_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "WRITER_WAIT_S", 0.05)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnreadableError, match="nobody writes"), open_log(str(tmp_path / "fifo")):
        pass


def test_a_fifo_with_a_slow_writer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with <(command): the writer is there, and has more time than a missing one."""
    monkeypatch.setattr(read, "WRITER_WAIT_S", 0.05)
    command = f'exec 3< <(read -r -t 1 <> <(:); zcat {FAULT}); exec "$@" /dev/fd/3'
    done = subprocess.run(
        ["bash", "-c", command, "bash", *programs.command("explain", "--json")],
        env=programs.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert "GPD220" in done.stdout
