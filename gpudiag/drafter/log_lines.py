"""Acceptance from the lines that an engine logs while it serves.

vLLM 0.24-0.33, every 10 s: 'SpecDecoding metrics: Mean acceptance length: 2.55, ... Accepted: N tokens, Drafted: N tokens,
Per-position acceptance rate: 0.751, 0.567, 0.453, ...', the positions being survival. SGLang 0.5.17-0.5.23, every
--decode-log-interval steps: 'Decode batch, #running-req: 4, ... accept len: 2.39, accept rate: 0.46, ...'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from gpudiag.drafter.formulas import conditional_of
from gpudiag.errors import UsageError
from gpudiag.logs.read import Tally, UnreadableError, blocks, open_log
from gpudiag.model.speculation import Acceptance, Estimate

_NUMBER: Final = rb"(\d{1,12}(?:\.\d{1,6})?)"
_VLLM: Final = re.compile(
    rb"SpecDecoding metrics: Mean acceptance length: "
    + _NUMBER
    + rb"[^\n]{0,200}?Accepted: (\d{1,12}) tokens, Drafted: (\d{1,12}) tokens, "
    + rb"Per-position acceptance rate: ([\d., ]{1,800}?), Avg"
)
_SGLANG: Final = re.compile(
    rb"Decode batch[^\n]{0,40}?#running-req: (\d{1,7})[^\n]{0,400}?accept len: " + _NUMBER + rb", accept rate: " + _NUMBER
)
_MOST_POSITIONS: Final = 64


class _Sums(Struct):
    lines: int = 0
    rounds: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    at: list[float] = []
    weight: float = 0.0
    length: float = 0.0
    rate: float = 0.0


def read(path: str, since: int = 0) -> Acceptance | None:
    """Acceptance over all lines from byte `since` on (of an uncompressed log); None if none tells. Raises UsageError."""
    sums = _Sums(at=[])
    for block in _blocks(path, since):
        for found in _VLLM.finditer(block):
            _add_vllm(sums, found)
        for found in _SGLANG.finditer(block):
            _add_sglang(sums, found)
    if sums.rounds:
        survival = tuple(n / sums.rounds for n in sums.at)
        return Acceptance(
            source="log",
            length=Estimate(value=1 + sums.accepted / sums.rounds),
            rate=sums.accepted / sums.drafted,
            rounds=round(sums.rounds),
            drafted=round(sums.drafted),
            accepted=round(sums.accepted),
            survival=tuple(Estimate(value=s) for s in survival),
            conditional=tuple(Estimate(value=c) for c in conditional_of(survival)),
        )
    if sums.weight:
        return Acceptance(source="log", length=Estimate(value=sums.length / sums.weight), rate=sums.rate / sums.weight)
    return None


def _blocks(path: str, since: int) -> Iterator[bytes]:
    try:
        with open_log(path) as stream:
            if since and stream.seekable():
                stream.seek(since)
            yield from blocks(stream, Tally())
    except UnreadableError as error:
        raise UsageError(f"--log {path}: {error.reason}", help=error.help) from None


def _add_vllm(sums: _Sums, found: re.Match[bytes]) -> None:
    rates = [float(piece) for piece in found[4].split(b",") if _is_number(piece)][:_MOST_POSITIONS]
    drafted = float(found[3])
    if not rates or not drafted:
        return
    rounds = drafted / len(rates)
    if len(sums.at) < len(rates):
        sums.at += [0.0] * (len(rates) - len(sums.at))
    for position, rate in enumerate(rates):
        sums.at[position] += rate * rounds
    sums.rounds += rounds
    sums.drafted += drafted
    sums.accepted += float(found[2])


def _add_sglang(sums: _Sums, found: re.Match[bytes]) -> None:
    """Each line stands for the same number of steps, so it counts by the requests that ran in them."""
    weight = float(found[1])
    sums.weight += weight
    sums.length += weight * float(found[2])
    sums.rate += weight * float(found[3])


def _is_number(piece: bytes) -> bool:
    return re.fullmatch(rb" *" + _NUMBER + rb" *", piece) is not None
