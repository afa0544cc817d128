"""The processes of one training: rank 0 starts the others, with the variables that torchrun sets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

_PATIENCE = timedelta(minutes=5)


class Ranks:
    """This process among the others; alone where one is enough."""

    def __init__(self, request, device):
        wanted = request.get("ranks") or (torch.cuda.device_count() if device == "cuda" else 1)
        self.rank = int(os.environ.get("RANK", "0"))
        self.count = int(os.environ.get("WORLD_SIZE", str(wanted)))
        self.first = self.rank == 0
        if self.count > 1 and "RANK" not in os.environ:
            _start_others(self.count)
        if device == "cuda":
            # set_device takes no device without an index (torch 2.11).
            device = f"cuda:{self.rank}"
        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.count > 1:
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo", timeout=_PATIENCE)

    def same(self, tensors):
        """Give every rank the first one's values."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def average(self, tensors):
        """Replace gradients by their mean over ranks: one collective, the drafter is small."""
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([t.flatten() for t in tensors])
        dist.all_reduce(flat)
        flat /= self.count
        at = 0
        for tensor in tensors:
            tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
            at += tensor.numel()

    def any(self, value):
        """Whether it is so on any rank."""
        if self.count == 1:
            return value
        said = torch.tensor([int(value)], device=self.device)
        dist.all_reduce(said, op=dist.ReduceOp.MAX)
        return bool(said.item())

    def end(self):
        """Leave together: the first rank writes while the others wait."""
        if self.count > 1:
            dist.barrier()
            dist.destroy_process_group()


def _start_others(count):
    """Ranks 1 and up, running what this process runs. If one of them breaks, this one does: its peers would wait for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    others = []
    for rank in range(1, count):
        own = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        # sys.orig_argv: this process was started with a program on its command line.
        others.append(subprocess.Popen(sys.orig_argv, env=own, stdin=subprocess.DEVNULL, stdout=sys.stderr))
    os.environ.update(shared, RANK="0", LOCAL_RANK="0")
    threading.Thread(target=_watch, args=(others,), daemon=True).start()


def _watch(others):
    def wait(process, rank):
        status = process.wait()
        if status:
            sys.stderr.write(f"rank {rank} ended with status {status}\n")
            sys.stderr.flush()
            os._exit(1)

    for rank, process in enumerate(others, 1):
        threading.Thread(target=wait, args=(process, rank), daemon=True).start()
