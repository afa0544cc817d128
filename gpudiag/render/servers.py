"""What tells one server from another in a list."""

from __future__ import annotations

from gpudiag.model.server import Server
from gpudiag.model.snapshot import Snapshot
from gpudiag.render.plain import clean


def describe(server: Server, around: Snapshot, width: int = 78) -> str:
    """One line: pid, engine, ranks and the command it was started with."""
    head = f"pid {server.root_pid:<8} {server.engine:<8} {rank_count(server)}  "
    command = command_of(server, around)
    room = width - len(head)
    return head + (command if len(command) <= room else command[: room - 3] + "...")


def rank_count(server: Server) -> str:
    """'1 rank', '8 ranks'."""
    ranks = len(server.ranks)
    return f"{ranks} {'rank ' if ranks == 1 else 'ranks'}"


def command_of(server: Server, around: Snapshot) -> str:
    """The command line of its root, without the directory of the program."""
    process = around.process(server.root_pid)
    program, _, rest = clean(process.title if process else "").partition(" ")
    return f"{program.rsplit('/', 1)[-1]} {rest}".strip()
