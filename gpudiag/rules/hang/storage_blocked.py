"""GPD313: a thread is in uninterruptible sleep: a disk, a network file system or a frozen one does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.process import Process
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import consequences, culprit, label, standing, still, waiting
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture

_NOT_STORAGE = ("wait_for_vfork_done", "kernel_clone", "do_fork", "nv", "os_acquire", "uvm", "drm_", "mem_cgroup", "freeze")
"""Other uninterruptible sleeps: a parent between vfork and exec, the GPU driver, a memory limit, a freezer."""


def evaluate(picture: Picture) -> Iterator[Finding]:
    for member, process in picture.members():
        target = node.thread(process.pid, process.pid)
        cause = picture.cause_of(target)
        if not (member.ranked or cause is not None) or not _blocked(picture, process):
            continue
        moved = still(picture, target)
        if moved is None or picture.motion(process.pid, process.pid) is not Motion.FROZEN:
            continue
        wchan = process.main_thread.wchan if process.main_thread else None
        state = Evidence(
            source="process-state",
            claim=f"the main thread of pid {process.pid} is in uninterruptible sleep (D) in {picture.looks_over}",
            excerpt=f"wchan {wchan or 'not shown'}",
            at=picture.at,
        )
        waiters = f"; {waiting(picture, cause)}" if cause is not None else ""
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, target)} is blocked in the kernel, as on storage that does not answer{waiters}",
            links=((state,), moved),
            culprits=(culprit(picture, target),),
            consequences=consequences(picture, cause),
            notes=standing(picture, target),
            next_steps=(
                f"see what it waits for: `sudo cat /proc/{process.pid}/stack` and `dmesg -T | tail -50`",
                "check the file system under the file it reads: `df -h`, `mount | grep -E 'nfs|fuse|lustre'`, the storage server",
            ),
        )


def _blocked(picture: Picture, process: Process) -> bool:
    if not picture.observation.has_change:
        return False
    for snapshot in picture.observation.snapshots:
        then = snapshot.process(process.pid)
        main = then.main_thread if then else None
        if main is None or main.state != "D" or (main.wchan or "").startswith(_NOT_STORAGE):
            return False
    return True


RULE = Rule(code="GPD313", name="storage-blocked", severity="error", evaluate=evaluate, specificity=84)
