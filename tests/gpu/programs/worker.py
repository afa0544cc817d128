"""One rank of a torch job over NCCL that hangs, or does not, in the way that its argument names.

It says 'imported', waits for a line on stdin, sets up its device and group, and says 'ready' when it is about to do it.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
FOREVER_S = 900.0
STUCK_KERNEL = """
import triton
import triton.language as tl

@triton.jit
def wait_for_flag(flag):
    seen = tl.atomic_add(flag, 0)
    while seen == 0:
        seen = tl.atomic_add(flag, 0)
"""
SLOW_EXTENSION = "\n".join(
    ["#include <torch/extension.h>", "#include <thrust/sort.h>", "#include <thrust/device_vector.h>"]
    + [f"void sort{n}(long n) {{ thrust::device_vector<double> v(n); thrust::sort(v.begin(), v.end()); }}" for n in range(6)]
)


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


class Job:
    """The group, a tensor for collectives and one for matrix products."""

    def __init__(self) -> None:
        torch.cuda.set_device(RANK)
        dist.init_process_group("nccl", timeout=timedelta(seconds=600))
        self.y = torch.ones(1 << 20, device="cuda")
        self.x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        for _ in range(20):
            dist.all_reduce(self.y)
            self.x @ self.x
        torch.cuda.synchronize()

    def step(self) -> None:
        dist.all_reduce(self.y)
        torch.cuda.synchronize()


class Cache:
    """Two locks that two threads take in opposite order."""

    def __init__(self) -> None:
        self.pages, self.table, self.taken = threading.Lock(), threading.Lock(), threading.Event()

    def move(self) -> None:
        with self.pages:
            threading.Thread(target=self.transfer, name="kv-transfer", daemon=True).start()
            self.taken.wait()
            with self.table:
                pass

    def transfer(self) -> None:
        with self.table:
            self.taken.set()
            with self.pages:
                pass


def missing_rank(job: Job) -> None:
    say("ready")
    if RANK == 1:
        time.sleep(FOREVER_S)
    job.step()


def other_operation(job: Job) -> None:
    say("ready")
    if RANK == 1:
        dist.all_gather([torch.empty_like(job.y) for _ in range(2)], job.y)
    else:
        dist.all_reduce(job.y)
    torch.cuda.synchronize()
    time.sleep(FOREVER_S)


def other_size(_job: Job) -> None:
    say("ready")
    dist.all_reduce(torch.ones(1 << (20 + RANK), device="cuda"))
    torch.cuda.synchronize()
    time.sleep(FOREVER_S)


def cross_order(job: Job) -> None:
    other = dist.new_group([0, 1])
    wide = torch.empty(2 << 20, device="cuda")
    for _ in range(5):
        dist.all_gather_into_tensor(wide, job.y, group=other)
    torch.cuda.synchronize()
    say("ready")
    if RANK == 1:
        dist.all_reduce(job.y)
    else:
        dist.all_gather_into_tensor(wide, job.y, group=other)
    torch.cuda.synchronize()


def killed(job: Job) -> None:
    say("ready")
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    job.step()


def stopped(job: Job) -> None:
    say("ready")
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    job.step()


def stale_lock(job: Job) -> None:
    from torch.utils.file_baton import FileBaton

    path = Path(os.environ["SCENARIO_DIRECTORY"]) / "lock"
    path.touch()
    say("ready")
    if RANK == 1:
        FileBaton(str(path)).wait()
    job.step()


def lock_cycle(job: Job) -> None:
    say("ready")
    if RANK == 1:
        Cache().move()
    job.step()


def stuck_kernel(job: Job) -> None:
    path = Path(os.environ["SCENARIO_DIRECTORY"]) / f"stuck{RANK}.py"
    path.write_text(STUCK_KERNEL)
    spec = importlib.util.spec_from_file_location("stuck", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    flag = torch.ones(1, dtype=torch.int32, device="cuda")
    module.wait_for_flag[(1,)](flag)
    torch.cuda.synchronize()
    say("ready")
    if RANK == 1:
        flag.zero_()
        module.wait_for_flag[(1,)](flag)
    job.step()


def graph_missing(job: Job) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            job.x @ job.x
            dist.all_reduce(job.y)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        job.x @ job.x
        dist.all_reduce(job.y)
    for _ in range(50):
        graph.replay()
    torch.cuda.synchronize()
    say("ready")
    if RANK == 1:
        time.sleep(FOREVER_S)
    graph.replay()
    torch.cuda.synchronize()


def busy(job: Job) -> None:
    say("ready")
    while True:
        for _ in range(20):
            job.x @ job.x
        job.step()


def idle(_job: Job) -> None:
    say("ready")
    threading.Event().wait(FOREVER_S)


def slow_compile(job: Job) -> None:
    from torch.utils.cpp_extension import load_inline

    say("ready")
    if RANK == 1:
        directory = Path(os.environ["SCENARIO_DIRECTORY"]) / "build"
        directory.mkdir()
        os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
        load_inline(
            "slow",
            cpp_sources="void sort0(long n);",
            cuda_sources=SLOW_EXTENSION,
            functions=["sort0"],
            build_directory=str(directory),
            with_cuda=True,
        )
    job.step()


def host_sleep(job: Job) -> None:
    say("ready")
    while True:
        job.step()
        if RANK == 1:
            time.sleep(0.2)


def send_without_recv(job: Job) -> None:
    dist.send(job.y, 1) if RANK == 0 else dist.recv(job.y, 0)
    torch.cuda.synchronize()
    say("ready")
    if RANK == 1:
        time.sleep(FOREVER_S)
    # More than the buffers between the two take, else the send ends without its receive.
    dist.send(torch.ones(1 << 27, device="cuda"), 1)
    torch.cuda.synchronize()


def other_kernel(job: Job) -> None:
    say("ready")
    if RANK == 1:
        while True:
            torch.cuda._sleep(2_000_000_000)
            torch.cuda.synchronize()
    job.step()


def main() -> None:
    scenario = sys.argv[1]
    say("imported")
    sys.stdin.readline()
    if scenario == "never_joined":
        if RANK == 1:
            say("ready")
            time.sleep(FOREVER_S)
        torch.cuda.set_device(RANK)
        say("ready")
        dist.init_process_group("nccl", timeout=timedelta(seconds=600))
    job = Job()
    run: Any = globals()[scenario]
    run(job)


main()
