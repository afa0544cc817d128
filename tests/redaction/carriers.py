"""Structures that hold every plant, in fields where a real server, log, machine or report would have it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from gpudiag.logs.facts import read_stream
from gpudiag.model.facts import Facts
from gpudiag.model.file import FileFact
from gpudiag.model.finding import Evidence
from gpudiag.model.log import LogFacts
from gpudiag.model.network import Socket
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok, Unavailable
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation
from gpudiag.model.stack import Frame, PyStack
from gpudiag.session.load import load
from gpudiag.session.pipeline import reports_of
from tests.doctor.machines import facts as made_machine
from tests.redaction.planted import Plant

STOPPED = Path(__file__).parents[1] / "recordings" / "servers" / "GPD305-vllm-stopped.gpudiag"


def texts(plants: Sequence[Plant]) -> list[str]:
    return [p.text for p in plants if p.slot == "text"]


def observation(plants: Sequence[Plant]) -> Observation:
    """A recorded server: plants in its environment, arguments, title, thread names, frames, paths, sockets and failures."""
    seen = load(STOPPED).observation
    return Observation(snapshots=tuple(replace(s, **_changes(s.processes, plants)) for s in seen.snapshots))


def _changes(processes: Sequence[Process], plants: Sequence[Plant]) -> dict[str, object]:
    arguments = [word for p in plants if p.slot == "arguments" for word in p.text.split(" ")]
    environ = {p.name: p.text for p in plants if p.slot == "environ"}
    free = texts(plants)
    first, second, *others = processes
    frames = tuple(Frame(function="serve", file=text, line=1, values={"path": text}) for text in free)
    stack = PyStack(tid=second.pid, name=free[0], ident=1, active=False, owns_gil=False, frames=frames)
    threads = tuple(replace(t, name=free[i % len(free)]) for i, t in enumerate(second.threads))
    planted = (
        replace(
            first,
            cmdline=Ok(value=("vllm", "serve", *arguments, "--port", "8000"), at=1.0),
            environ=Ok(value={"RANK": "0", **environ}, at=1.0),
        ),
        replace(
            second,
            threads=threads,
            stacks=Ok(value=(stack,), at=1.0),
            cmdline=Ok(value=tuple(free), at=1.0),
            io=Unavailable(reason=free[1], help=free[2]),
        ),
        *others,
    )
    sockets = tuple(
        Socket(inode=10**9 + i, family="tcp", state="ESTABLISHED", local=p.text, remote="127.0.0.1:1")
        for i, p in enumerate(p for p in plants if p.slot == "socket")
    )
    return {
        "processes": planted,
        "sockets": Ok(value=sockets, at=1.0),
        "files": tuple(FileFact(path=text, exists=True, openers=()) for text in free),
    }


def log(plants: Sequence[Plant]) -> LogFacts:
    """What the reader of logs keeps of a log that says all of it: as lines, as errors, and as the cause of the end."""
    lines = [line for text in texts(plants) for line in text.split("\n")]
    logged = "".join(
        f"{line}\n(Worker_TP1 pid=5) ERROR 11-29 10:00:00 [a.py:1] {line}\n[2026-11-29 10:00:00 TP1] {line}\n" for line in lines
    )
    traces = "".join(
        "(Worker_TP1 pid=5) ERROR 11-29 10:00:01 [a.py:1] Traceback (most recent call last):\n"
        f'(Worker_TP1 pid=5) ERROR 11-29 10:00:01 [a.py:1]   File "/opt/x.py", line 3, in f\n'
        f"(Worker_TP1 pid=5) ERROR 11-29 10:00:01 [a.py:1]     call({line!r})\n"
        f"(Worker_TP1 pid=5) ERROR 11-29 10:00:01 [a.py:1] ValueError: {line}\n"
        for line in lines
    )
    return read_stream(io.BytesIO((logged + traces).encode()), "server.log")


def machine(plants: Sequence[Plant]) -> Facts:
    """What doctor keeps: variables, configuration of NCCL, versions of tools, names of processes, a failing import."""
    free = texts(plants)
    return made_machine(
        environment={p.name: p.text for p in plants if p.slot == "environ"} | {f"NCCL_{i}": t for i, t in enumerate(free)},
        nccl_files={"/etc/nccl.conf": "\n".join(free)},
        tools=dict(enumerate_names(free)),
        kernel_options=Ok(value=" ".join(t for t in free if "\n" not in t), at=1.0),
        interfaces=Unavailable(reason=free[0], help=free[1]),
    )


def enumerate_names(items: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"tool{i}", item) for i, item in enumerate(items)]


def report(plants: Sequence[Plant]) -> Report:
    """A report whose titles, evidence and steps say all of it: whatever a rule may quote."""
    (plain,) = reports_of(load(STOPPED).observation, command="attach")
    every = [p.text for p in plants if p.slot != "environ"] + [f"{p.name}={p.text}" for p in plants if p.slot == "environ"]
    evidence = tuple(Evidence(source="log", claim=text, excerpt=text, at=1.0) for text in every)
    found = tuple(
        replace(f, title=f"{f.title}; {every[0]}", evidence=(*f.evidence, *evidence), next_steps=tuple(every))
        for f in plain.findings
    )
    assert plain.verdict is not None
    return replace(plain, findings=found, verdict=replace(plain.verdict, title=every[1], next_step=every[2]))
