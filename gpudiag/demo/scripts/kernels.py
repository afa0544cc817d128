"""Kernels are built once; a lock file keeps two processes from building the same one."""

from __future__ import annotations

import os
import subprocess
import time

from .lifeline import watch_lifeline
from .settings import Settings, launch, load_settings

POLL_S = 0.05


class BuildLock:
    """Held by whoever created the file; everybody else stands by until the file is gone."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.handle = -1

    def try_take(self) -> bool:
        try:
            self.handle = os.open(self.path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def stand_by(self) -> None:
        while os.path.exists(self.path):
            time.sleep(POLL_S)

    def give_back(self) -> None:
        os.close(self.handle)
        os.remove(self.path)


def kernel_lock(settings: Settings, owner: str, kernel: str) -> BuildLock:
    folder = os.path.join(settings.directory, "cache", owner, kernel)
    os.makedirs(folder, exist_ok=True)
    return BuildLock(os.path.join(folder, settings.lock_name))


def load_kernel(settings: Settings, owner: str, kernel: str) -> None:
    """Build `kernel`, or wait until whoever builds it is done."""
    lock = kernel_lock(settings, owner, kernel)
    if not lock.try_take():
        lock.stand_by()
        return
    try:
        with open(os.path.join(os.path.dirname(lock.path), "kernel.o"), "wb") as binary:
            binary.write(bytes(64))
    finally:
        lock.give_back()


def build_forever(directory: str, owner: str) -> None:
    """A builder that takes the lock and never gets to the end of its build."""
    settings = load_settings(directory)
    watch_lifeline(settings.lifeline_fd)
    kernel_lock(settings, owner, settings.kernel_name).try_take()
    time.sleep(3600)


COMPILER_CHAINS = (("ninja", "nvcc", "cicc"), ("ninja", "c++", "cc1plus"), ("nvcc", "ptxas"), ("cicc",))


def compile_kernel(settings: Settings, family: int) -> None:
    """Build a kernel with real child processes and wait until they are done."""
    fds = (family, settings.report_fd)
    chain = COMPILER_CHAINS[settings.variant % len(COMPILER_CHAINS)]
    if settings.chooses(3):
        process = launch(settings, chain[0], "compiler", ",".join(chain), str(family), fds=fds)
        process.wait()
        return
    subprocess.run(
        [chain[0], "-m", str(__package__), "compiler", settings.directory, ",".join(chain), str(family)],
        executable=settings.python,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=fds,
        check=True,
    )
