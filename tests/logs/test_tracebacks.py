"""Tracebacks taken apart: by process, with chains, groups and what stands inside a message."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from gpudiag.model.log import Traceback
from tests.logs.support import facts_of


def traces(text: str) -> tuple[Traceback, ...]:
    return facts_of(text.encode()).tracebacks


def names(trace: Traceback) -> list[str]:
    return [node.name for node in trace.chain()]


def printed_by(program: str) -> str:
    """What this interpreter really prints for a program that fails."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode
    return done.stderr


def test_a_chain_of_causes_is_a_tree() -> None:
    text = printed_by("""
        def deep():
            raise KeyError("a")
        try:
            try:
                deep()
            except KeyError as error:
                raise ValueError("b") from error
        except ValueError:
            raise RuntimeError("c")
    """)
    (trace,) = traces(text)
    assert names(trace) == ["KeyError", "ValueError", "RuntimeError"]
    assert trace.context is not None
    assert trace.context.cause is not None
    assert trace.context.cause.frames[-1].function == "deep"


def test_an_exception_group_keeps_its_members() -> None:
    text = printed_by("""
        def one():
            raise ValueError("first")
        errors = []
        for f in (one, lambda: [][1], lambda: {}["k"]):
            try:
                f()
            except Exception as error:
                errors.append(error)
        raise ExceptionGroup("both", [errors[0], ExceptionGroup("inner", errors[1:])])
    """)
    (trace,) = traces(text)
    assert trace.name == "ExceptionGroup"
    assert [m.name for m in trace.group] == ["ValueError", "ExceptionGroup"]
    assert [m.name for m in trace.group[1].group] == ["IndexError", "KeyError"]
    assert trace.group[0].frames[-1].function == "one"


def test_a_syntax_error_ends_with_its_own_line() -> None:
    text = printed_by("compile('x = (1,\\ny = 2', '/srv/models/llama.py', 'exec')")
    (trace,) = traces(text)
    assert trace.name == "SyntaxError"
    assert (trace.frames[-1].file, trace.frames[-1].line) == ("/srv/models/llama.py", 1)


def test_a_message_of_many_lines_stays_one_message() -> None:
    text = printed_by("raise ValueError('first\\nsecond\\nthird: 3')") + "INFO:     Shutting down\n"
    (trace,) = traces(text)
    assert trace.message == "first\nsecond\nthird: 3"


def test_the_output_of_a_child_inside_the_message_is_unfolded() -> None:
    text = printed_by("""
        import subprocess, sys
        done = subprocess.run([sys.executable, "-c", "import nothing_like_this"], capture_output=True, text=True)
        raise RuntimeError(f"Error raised in subprocess:\\n{done.stderr}")
    """)
    (trace,) = traces(text)
    assert names(trace) == ["ModuleNotFoundError", "RuntimeError"]


def test_multiprocessings_remote_traceback() -> None:
    text = printed_by("""
        import multiprocessing
        def work(n):
            return [][n]
        with multiprocessing.get_context("fork").Pool(1) as pool:
            pool.map(work, [1])
    """)
    (trace,) = traces(text)
    assert names(trace)[0] == "IndexError"
    assert next(trace.chain()).frames[-1].function == "work"


def test_a_very_long_chain_keeps_its_first_exception() -> None:
    """400 links as the interpreter would print them."""
    link = 'Traceback (most recent call last):\n  File "/srv/a.py", line {n}, in f\n    g()\nValueError: {n}\n'
    middle = "\nThe above exception was the direct cause of the following exception:\n\n"
    (trace,) = traces(middle.join(link.format(n=n) for n in range(400)))
    assert next(trace.chain()).message == "0"
    assert trace.message == "399"
    assert len(list(trace.chain())) < 50


TAGGED = [
    "Traceback (most recent call last):",
    '  File "/opt/venv/vllm/worker.py", line {line}, in run',
    "    self.step()",
    "    ^^^^^^^^^^^",
    "RuntimeError: rank {rank} failed",
]


def test_interleaved_processes_are_taken_apart() -> None:
    """Eight ranks write line by line in turn, with progress bars in between."""
    lines = []
    for step in TAGGED:
        lines += [
            f"(Worker_TP{rank} pid={100 + rank}) ERROR 11-29 10:00:00 [executor.py:1] " + step.format(line=10 + rank, rank=rank)
            for rank in range(8)
        ]
        lines.append("\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00it/s]")
    found = traces("\n".join(lines) + "\n")
    assert len(found) == 8
    for trace in found:
        rank = trace.speaker.rank.global_
        assert trace.message == f"rank {rank} failed"
        assert trace.frames[0].line == 10 + (rank or 0)


def test_interleaved_processes_without_prefixes() -> None:
    """Two processes print the same traceback at once, a line each in turn."""
    text = printed_by("def f():\n    raise IndexError('same')\nf()")
    doubled = "".join(line + line for line in text.splitlines(keepends=True))
    found = traces(doubled)
    assert len(found) == 2
    assert [len(t.frames) for t in found] == [2, 2]
    assert {t.headline for t in found} == {"IndexError: same"}


def test_rays_worker_frames_inside_the_message() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/vllm/executor.py", line 5, in run\n    ray.get(refs)\n'
        "ray.exceptions.RayTaskError(ValueError): ray::RayWorkerWrapper.execute_method() (pid=77, ip=192.0.2.9)\n"
        '  File "/opt/venv/vllm/worker.py", line 50, in load\n'
        "    self.read()\n"
        "ValueError: bad shard\n"
    )
    (trace,) = traces(text)
    assert next(trace.chain()).frames[-1].line == 50


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_windows_line_ends_and_a_missing_last_one(ending: bytes) -> None:
    text = (
        b"\r\n".join([b"Traceback (most recent call last):", b'  File "/srv/a.py", line 3, in f', b"    x()", b"ValueError: bad"])
        + ending
    )
    (trace,) = facts_of(text).tracebacks
    assert trace.headline == "ValueError: bad"
    assert trace.frames[0].source == "x()"


def test_container_prefixes_are_taken_off() -> None:
    lines = ["Traceback (most recent call last):", '  File "/srv/a.py", line 3, in f', "    x()", "ValueError: bad"]
    for prefix in ("2026-11-29T10:00:00.123456789Z stderr F ", "sglang-1  | ", "2026-11-29T10:00:00.123456789Z "):
        (trace,) = traces("".join(f"{prefix}{line}\n" for line in lines))
        assert trace.headline == "ValueError: bad", prefix
