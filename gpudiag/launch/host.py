"""Looks at the machine for a plan: GPUs, CPUs, a free port, a place for the run's files."""

from __future__ import annotations

import glob
import os
import secrets
import socket
from pathlib import Path
from typing import Final

from gpudiag.launch.request import Host
from gpudiag.launch.run_directory import new_run_id, runs_home

_GPU_DEVICES: Final = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
_NUMA: Final = "/sys/devices/system/node/node[0-9]*"
_RAS_PORTS: Final = range(28100, 30000)
"""Below 32768, where Linux begins to hand out ports to connections (net.ipv4.ip_local_port_range)."""


def look(engine: str, record: str | None) -> Host:
    """`record` is the directory for runs that the user named."""
    run_id = new_run_id(engine)
    runs = Path(record).expanduser() if record else runs_home()
    return Host(
        has_gpu=any(glob.glob(pattern) for pattern in _GPU_DEVICES),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        numa_nodes=max(1, len(glob.glob(_NUMA))),
        ras_port=free_port(_RAS_PORTS),
        run_id=run_id,
        run_directory=os.path.abspath(runs / run_id),
    )


def free_port(ports: range) -> int:
    """A port of the range on which nobody listens now; any of them if all are taken."""
    order = list(ports)
    secrets.SystemRandom().shuffle(order)
    return next((port for port in order if _is_free(port)), order[0])


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
