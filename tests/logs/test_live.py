"""The log of a running server: read whatever it is, without waiting for storage that hangs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from gpudiag.logs import live
from gpudiag.logs.live import HEAD_BYTES, TAIL_BYTES, WHOLE_BYTES, LogReader, Stream
from tests.logs.support import raw

HEALTHY = b"(APIServer pid=4242) INFO 11-29 18:31:17 [loggers.py:335] Engine 000: Avg generation throughput: 1.6 tokens/s\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(raw("vllm_raise_rank1"))
    return path


@pytest.fixture
def writer(log: Path) -> Iterator[Popen[bytes]]:
    """A process whose standard output and error are the log."""
    with log.open("ab") as file, Popen(["cat"], stdin=PIPE, stdout=file, stderr=file) as process:
        yield process


def streams(pid: int) -> list[Stream]:
    paths = [(fd, f"/proc/{pid}/fd/{fd}") for fd in (1, 2)]
    return [Stream(pid=pid, fd=fd, inode=os.stat(path).st_ino, name=os.readlink(path)) for fd, path in paths]


def test_a_file_is_read_once_though_two_descriptors_lead_there(writer: Popen[bytes], log: Path) -> None:
    told = LogReader().read(writer.pid, streams(writer.pid))
    assert told.facts is not None
    assert [s.name for s in told.facts.sources] == [str(log)]
    assert any(t.name == "IndexError" for t in told.facts.tracebacks)
    assert told.written_at == log.stat().st_mtime


def test_a_reader_that_was_started_ahead_reads_what_was_written_since(writer: Popen[bytes], log: Path) -> None:
    reader = LogReader()
    child = reader.start()
    assert reader.start() is child
    log.write_bytes(raw("vllm_sigkill_rank1"))
    told = reader.read(writer.pid, streams(writer.pid))
    assert told.facts is not None
    assert any(e.kind == "worker-died" for e in told.facts.events)
    assert child.poll() is not None
    assert reader.read(writer.pid, streams(writer.pid)).facts == told.facts, "a second read takes another child"


def test_a_reader_that_is_not_needed_ends() -> None:
    reader = LogReader()
    child = reader.start()
    reader.close()
    assert child.poll() is not None


def test_a_log_that_was_deleted_is_read(writer: Popen[bytes], log: Path) -> None:
    known = streams(writer.pid)
    log.unlink()
    assert LogReader().read(writer.pid, known).facts is not None


def test_of_a_large_log_both_ends_are_read(writer: Popen[bytes], log: Path) -> None:
    """The start says which engine it is, the end what happened; line numbers are those of the two parts."""
    lines = raw("vllm_sigkill_rank1").splitlines(keepends=True)
    with log.open("wb") as file:
        file.write(b"".join(lines[:60]))
        file.write(HEALTHY * (WHOLE_BYTES // len(HEALTHY) + 1))
        file.write(b"".join(lines[60:]))
    told = LogReader().read(writer.pid, streams(writer.pid))
    assert told.facts is not None
    (source,) = told.facts.sources
    assert source.name.endswith("server.log (first 1 and last 8 MiB)")
    assert source.bytes <= HEAD_BYTES + TAIL_BYTES
    assert told.facts.milestones[0].place.number < 60
    assert any(e.kind == "worker-died" for e in told.facts.events)


def test_what_is_no_file_says_so() -> None:
    told = LogReader().read(1, [])
    assert told.facts is None
    assert told.reason
    assert told.help.startswith("gpudiag explain")
    with Popen(["cat"], stdin=PIPE, stdout=DEVNULL) as process:
        device = Stream(pid=process.pid, fd=1, inode=os.stat(os.devnull).st_ino, name="/dev/null")
        assert "is another file now" in LogReader().read(process.pid, [device]).reason


def test_a_descriptor_that_became_another_file_is_left_alone(writer: Popen[bytes]) -> None:
    other = [Stream(pid=s.pid, fd=s.fd, inode=s.inode + 1, name=s.name) for s in streams(writer.pid)]
    assert LogReader().read(writer.pid, other).facts is None


def test_a_process_that_is_gone_is_a_reason() -> None:
    with Popen(["true"]) as process:
        process.wait()
    assert LogReader().read(process.pid, [Stream(pid=process.pid, fd=1, inode=1, name="x")]).reason


def test_storage_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reader that does not answer: an interpreter that only sleeps."""
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    told = LogReader().read(1, [Stream(pid=1, fd=1, inode=1, name="x")], deadline_s=0.3)
    assert told.reason.startswith("deadline")


def test_a_reader_that_dies_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert live.LogReader().read(1, [Stream(pid=1, fd=1, inode=1, name="x")]).reason
