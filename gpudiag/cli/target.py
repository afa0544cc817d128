"""Which server is meant: by pid, the only one there is, or the one that the user picks."""

from __future__ import annotations

import os
import sys

import click

from gpudiag.errors import NoTargetError, UsageError
from gpudiag.model.server import Server
from gpudiag.model.snapshot import Snapshot
from gpudiag.render.plain import clean
from gpudiag.session import pipeline

_LOOKED_FOR = "SGLang, vLLM and torch.distributed processes"


def by_pid(around: Snapshot, pid: int) -> Server:
    """The server that `pid` belongs to. Raises NoTargetError if there is no such process."""
    from gpudiag import engines

    server = engines.server_of(around, pid)
    if server is None:
        from gpudiag.collect.access import absent

        why = absent(pid)
        raise NoTargetError(why.reason, help=why.help)
    if server.engine == "unknown" and server.root_pid in _above(around):
        raise UsageError(
            f"process {pid} is the shell or program that runs gpudiag, and it waits for gpudiag",
            help="gpudiag attach PID with the pid of the server",
        )
    return server


def _above(around: Snapshot) -> set[int]:
    """The ancestors of gpudiag itself, but for the first process, which may be a container's server."""
    parents = {p.pid: p.ppid for p in around.processes}
    found: set[int] = set()
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        pid = parents.get(pid, 0)
    return found


def every(around: Snapshot) -> tuple[Server, ...]:
    """All servers on the host. Raises NoTargetError if there is none."""
    servers = pipeline.recognise(around)
    if not servers:
        raise NoTargetError(
            f"found no server: looked for {_LOOKED_FOR} among {len(around.processes)} processes",
            help="gpudiag attach PID\nto see what a diagnosis looks like: gpudiag demo",
        )
    return servers


def choose(around: Snapshot) -> Server:
    """The only server; or of several the one that the user picks. Raises UsageError if there is nobody to ask."""
    servers = every(around)
    if len(servers) == 1:
        return servers[0]
    click.echo(f"gpudiag: {len(servers)} servers run here:", err=True)
    for server in servers:
        click.echo(f"  {describe(server, around)}", err=True)
    if not can_ask():
        raise UsageError(
            "several servers run here and none was named",
            help=f"gpudiag attach {servers[0].root_pid}\nor all of them: gpudiag attach --all",
        )
    pids = {str(s.root_pid): s for s in servers}
    picked: str = click.prompt("pid", type=click.Choice(list(pids)), default=str(servers[0].root_pid), err=True)
    return pids[picked]


def can_ask() -> bool:
    """Whether somebody sits at a terminal: questions go to stderr, answers come from stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def describe(server: Server, around: Snapshot, width: int = 78) -> str:
    """One line: pid, engine, ranks and the command it was started with."""
    process = around.process(server.root_pid)
    ranks = len(server.ranks)
    head = f"pid {server.root_pid:<8} {server.engine:<8} {ranks} {'rank ' if ranks == 1 else 'ranks'}  "
    program, _, rest = clean(process.title if process else "").partition(" ")
    command = f"{program.rsplit('/', 1)[-1]} {rest}".strip()
    room = width - len(head)
    return head + (command if len(command) <= room else command[: room - 3] + "...")
