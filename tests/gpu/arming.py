"""What arming costs two ranks: matrix products and all-reduces with the variables that `gpudiag launch` set, and without.

    python3 -m tests.gpu.arming --run DIRECTORY [--rounds 40] [--window-s 0.3]

Both kinds of ranks live side by side on the same GPUs, and one kind runs at a time, in turn: what changes with the hour or
the temperature changes for both. DIRECTORY is of a run whose manifest says what was armed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.gpu.launch import T_975, interval

OF_THE_DUMP: Final = "CUDA_"
OF_NCCL: Final = ("NCCL_", "TORCH_", OF_THE_DUMP)

RANK: Final = """
import os, sys, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
weight = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
hidden = torch.randn(64, 8192, device="cuda", dtype=torch.bfloat16)
small = torch.randn(8192, device="cuda", dtype=torch.bfloat16)

def decode():
    dist.all_reduce(torch.mm(hidden, weight))

def reduce():
    dist.all_reduce(small)

steps = {"decode": decode, "reduce": reduce}
for step in steps.values():
    for _ in range(50):
        step()
torch.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    name, count = line.split()
    dist.barrier()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(int(count)):
        steps[name]()
    torch.cuda.synchronize()
    print(time.perf_counter() - began, flush=True)
os._exit(0)
"""


class Pair:
    """Two ranks that do what they are told and say how long it took."""

    def __init__(self, variables: dict[str, str], port: int) -> None:
        around = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_NCCL")}
        self.ranks = [
            subprocess.Popen(
                [sys.executable, "-c", RANK],
                env={
                    **around,
                    **variables,
                    "RANK": str(r),
                    "WORLD_SIZE": "2",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for r in range(2)
        ]

    def answers(self) -> list[str]:
        return [rank.stdout.readline().strip() for rank in self.ranks if rank.stdout is not None]

    def seconds(self, step: str, count: int) -> float:
        """Of the slower rank."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{step} {count}\n")
            rank.stdin.flush()
        return max(float(text) for text in self.answers())

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()


def variables_of(run: Path) -> dict[str, dict[str, str]]:
    """By kind: none; what is armed by default; that and the kernel dump."""
    manifest: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    armed = {k: v for k, v in manifest["plan"]["environment"] if k.startswith(OF_NCCL)}
    armed = {k: v.replace(manifest["plan"]["run_directory"], str(run)) for k, v in armed.items()}
    default = {k: v for k, v in armed.items() if not k.startswith(OF_THE_DUMP)}
    return {"plain": {}, "armed": default} | ({"armed, kernel dump": armed} if armed != default else {})


def measure(pairs: dict[str, Pair], step: str, rounds: int, window_s: float) -> dict[str, list[float]]:
    """Steps a second, by kind, one number a round."""
    count = max(10, int(200 * window_s / pairs["plain"].seconds(step, 200)))
    rates: dict[str, list[float]] = {kind: [] for kind in pairs}
    for number in range(rounds):
        for kind in list(pairs) if number % 2 else list(reversed(pairs)):
            rates[kind].append(count / pairs[kind].seconds(step, count))
    return rates


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=40, choices=[n + 1 for n in T_975])
    parser.add_argument("--window-s", type=float, default=0.3)
    options = parser.parse_args()
    kinds = variables_of(options.run)
    pairs = {kind: Pair(variables, 29_700 + n) for n, (kind, variables) in enumerate(kinds.items())}
    try:
        if any(answer != "ready" for pair in pairs.values() for answer in pair.answers()):
            print("a rank did not come up", file=sys.stderr)
            return 1
        for step in ("decode", "reduce"):
            rates = measure(pairs, step, options.rounds, options.window_s)
            for kind in list(rates)[1:]:
                changes = [100 * (with_ / without - 1) for without, with_ in zip(rates["plain"], rates[kind], strict=True)]
                each = 1e6 / statistics.mean(rates["plain"])
                row = {"step": step, "us_a_step": round(each, 1), "kind": kind, "change": interval(changes), "rates": rates[kind]}
                print(json.dumps({**row, "plain": rates["plain"], "variables": sorted(kinds[kind])}), flush=True)
    finally:
        for pair in pairs.values():
            pair.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
