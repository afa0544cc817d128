"""The victim reads a file of a file system that does not answer, and is in state D.

Needs root and /dev/fuse. The file system is mounted in a mount namespace of the victim's own and goes with it.
"""

from __future__ import annotations

import os

from tests.programs.common import Seat, idle_company, run_program
from tests.programs.fuse import FILE_NAME, mount_privately, serve_all_but_reads


def load_weights(path: str) -> bytes:
    with open(path, "rb") as weights:
        return weights.read()


def victim(seat: Seat) -> None:
    idle_company()
    folder = os.path.join(seat.options["directory"], "model")
    os.mkdir(folder)
    device = mount_privately(folder)
    seat.launch("storage", str(device), title="storage_daemon", fds=(device,))
    os.close(device)
    path = os.path.join(folder, FILE_NAME)
    seat.arrive("uninterruptible", awaits=("storage",), path=path)
    load_weights(path)


def storage(seat: Seat) -> None:
    seat.arrive()
    serve_all_but_reads(int(seat.extra[0]))


run_program(victim, storage=storage)
