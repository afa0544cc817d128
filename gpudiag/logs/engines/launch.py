"""What the supervisor of a server that gpudiag started writes into events.log beside the server's own log."""

from __future__ import annotations

from typing import Final

from gpudiag.logs.engines.base import Sign, sign

SAW: Final = "gpudiag saw "

SIGNS: Final[tuple[Sign, ...]] = (
    sign(
        "worker-died",
        SAW,
        r"gpudiag saw (?P<name>\S{1,80}) \(pid (?P<pid>\d+)(?:, rank (?P<rank>\d+))?\) end with exit code (?P<code>-?\d+)",
    ),
)
