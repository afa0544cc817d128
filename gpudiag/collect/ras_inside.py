"""Asks NCCL's service from inside another net namespace: `python -m gpudiag.collect.ras_inside PARENT PID HOST PORT BUDGET_S`."""

from __future__ import annotations

import sys

import msgspec

from gpudiag.collect.net_namespace import inside
from gpudiag.collect.parent_death import die_with
from gpudiag.collect.ras import RasReading, query
from gpudiag.model.reading import Failed, Unavailable


def main() -> None:
    """Print the reading in MessagePack."""
    die_with(int(sys.argv[1]))
    pid, host, port, budget_s = int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
    sys.stdout.buffer.write(msgspec.msgpack.encode(_query(pid, (host, port), budget_s)))


def _query(pid: int, address: tuple[str, int], budget_s: float) -> RasReading:
    try:
        with inside(pid):
            return query(address, budget_s)
    except PermissionError:
        reason = f"NCCL's service of process {pid} is in another net namespace, which takes CAP_SYS_ADMIN to enter"
        return Unavailable(reason=reason, help=f"sudo nsenter -t {pid} -n gpudiag attach {pid} --ras")
    except OSError as error:
        return Failed(error=f"the net namespace of process {pid}: {error.strerror}")


if __name__ == "__main__":
    main()
