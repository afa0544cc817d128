"""Whether the counters of a server move. They are asked of the server itself: only where nothing else can tell."""

from __future__ import annotations

import time
from typing import Final, TypeAlias

from gpudiag.collect import procfs
from gpudiag.collect.metrics import read_metrics
from gpudiag.model.metrics import ServerMetrics, TokenCounts
from gpudiag.model.reading import Failed, Ok, Unavailable

TokenReading: TypeAlias = Ok[TokenCounts] | Unavailable | Failed

LONGEST_S: Final = 6.0
"""Both engines count each step; one that takes longer than this is rare even on a CPU."""
DEADLINE_S: Final = 2.0
_EVERY_S: Final = 1.0


def count_tokens(
    address: str, net_namespace: int | None, *, longest_s: float = LONGEST_S, deadline_s: float = DEADLINE_S
) -> TokenReading:
    """Ask for /metrics at `address` (host:port in that network namespace) once a second, until they move or time is up."""
    if net_namespace not in (None, procfs.namespace_inode("self", "net")):
        return Unavailable(
            reason=f"{address} is in another network namespace, and its /metrics were not asked",
            help=f"in the server's container: curl -s http://{address}/metrics | grep tokens_total",
        )
    started = time.monotonic()
    first = read_metrics(f"http://{address}", deadline_s=deadline_s)
    if not isinstance(first, Ok):
        return first
    before = after = _tokens(first.value)
    while before is not None and after == before and time.monotonic() - started < longest_s:
        time.sleep(_EVERY_S)
        reading = read_metrics(f"http://{address}", deadline_s=deadline_s)
        if not isinstance(reading, Ok):
            return reading
        after = _tokens(reading.value)
    if before is None or after is None or after < before:
        return Unavailable(reason=f"http://{address}/metrics does not count tokens at each step", help="")
    took_s = time.monotonic() - started
    return Ok(value=TokenCounts(before=before, after=after, over_s=round(took_s, 3)), at=first.at, took_s=took_s)


def _tokens(metrics: ServerMetrics) -> float | None:
    """Generated at each step, and read: a long prompt is work too. None where the former is not counted."""
    return None if metrics.generated_live is None else metrics.generated_live + (metrics.prompt_tokens or 0.0)
