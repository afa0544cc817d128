"""Made-up dumps in the form that torch 2.13 writes (version 2.10), with one disagreement each."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Literal

Fault = Literal["none", "missing", "type", "size", "dtype", "state", "p2p"]
TORCH = "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"


def entry(
    number: int, *, operation: str = "nccl:all_reduce", size: int = 4096, dtype: str = "BFloat16", done: bool = True
) -> dict[str, Any]:
    return {
        "frames": [
            {"name": "all_reduce", "filename": TORCH, "line": 3068},
            {"name": "forward", "filename": "/srv/model.py", "line": 40 + number % 7},
        ],
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_name": "python3",
        "thread_id": "140399216415040",
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": operation,
        "time_created_ns": 1_795_977_500_000_000_000 + number,
        "input_sizes": [[size]],
        "input_dtypes": [dtype],
        "output_sizes": [[size]],
        "output_dtypes": [dtype],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": 1_795_977_500_000_000_001 + number if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def p2p(number: int, operation: str, source: int, destination: int) -> dict[str, Any]:
    name = f"nccl:send {source}->{destination}" if operation == "send" else f"nccl:recv {destination}<-{source}"
    return {**entry(number, operation=name, done=False), "collective_seq_id": 0, "p2p_seq_id": 1, "is_p2p": True}


def dump(rank: int, world: int, records: int, fault: Fault = "none", at: int | None = None, odd: int = 1) -> dict[str, Any]:
    """The dump of one rank. The rank `odd` disagrees from record `at` on (default: the last one)."""
    at = at or records
    entries = [entry(n) for n in range(1, records + 1)]
    if fault in ("missing", "state", "type"):
        entries[at - 1 :] = [entry(n, done=False) for n in range(at, records + 1)]
    if rank == odd:
        if fault == "missing":
            del entries[at - 1 :]
        elif fault == "type":
            entries[at - 1] = entry(at, operation="nccl:broadcast", done=False)
        elif fault == "size":
            entries[at - 1] = entry(at, size=8192)
        elif fault == "dtype":
            entries[at - 1] = entry(at, dtype="Float")
    elif fault == "state":
        entries[at - 1 :] = [entry(n) for n in range(at, records + 1)]
    if fault == "p2p" and rank == 0:
        entries.append(p2p(records + 1, "send", 0, odd))
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}},
        "comm_lib_version": "2.28.9",
        "pg_status": {
            "0": {"last_enqueued_collective": records, "last_started_collective": -1, "last_completed_collective": records}
        },
        "entries": entries,
    }


def write(directory: Path, world: int, records: int, fault: Fault = "none", at: int | None = None, odd: int = 1) -> list[Path]:
    """Files dump_0 ... as torch names them. All ranks but the odd one are alike, so they are made once."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    common = b""
    for rank in range(world):
        special = rank == odd or (fault == "p2p" and rank == 0)
        if special or not common:
            data = pickle.dumps(dump(rank, world, records, fault, at, odd), protocol=2)
            common = common or (b"" if special else data)
        else:
            data = common
        path = directory / f"dump_{rank}"
        path.write_bytes(data)
        paths.append(path)
    return paths
