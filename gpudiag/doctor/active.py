"""Tests that really use the GPUs. Only when asked for: on a machine with broken peer access they may wedge it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import permutations
from typing import Final

import msgspec
from msgspec import Struct

from gpudiag.assets import asset
from gpudiag.doctor import nccl_library, probe
from gpudiag.model.facts import Gpu, GpuSet, GpuTest
from gpudiag.model.install import Environment
from gpudiag.model.reading import Failed, Ok, Reading, Unavailable

_COMPILER_S: Final = 120.0
_MAX_PAIRS: Final = 56
"""All ordered pairs of eight GPUs."""

Sets = Sequence[tuple[Gpu, ...]]


class Test(Struct, frozen=True, kw_only=True):
    """A program under kernels/, and how long one run of it may take."""

    name: str
    source: str
    limit_s: float = 20.0


_SMOKE: Final = Test(name="smoke", source="cuda/smoke.cu")
_TRITON: Final = Test(name="triton", source="triton/smoke.py", limit_s=120.0)
_PEER_COPY: Final = Test(name="peer_copy", source="cuda/peer_copy.cu")
_PEER_IPC: Final = Test(name="peer_ipc", source="cuda/peer_ipc.cu")
_ALL_REDUCE: Final = Test(name="all_reduce", source="cuda/all_reduce.cu", limit_s=60.0)

TESTS: Final = (_SMOKE, _TRITON, _PEER_COPY, _PEER_IPC, _ALL_REDUCE)
"""In the order in which they are run: what uses one GPU first."""


class _Run(Struct, frozen=True, kw_only=True):
    gpus: tuple[str, ...]
    outcome: str
    detail: str
    took_s: float


def run(
    gpus: GpuSet, environment: Environment | None, variables: Mapping[str, str], wanted: Collection[str] = ()
) -> Reading[tuple[GpuTest, ...]]:
    """Smoke on each GPU that a server would see, then what every pair shares, then all together; nothing after a hang.

    `environment` is the server's: its Triton and its NCCL are used. `wanted` are names of tests; empty for all.
    """
    seen = visible(gpus.gpus, variables.get("CUDA_VISIBLE_DEVICES"))
    if not seen:
        return Unavailable(reason="CUDA_VISIBLE_DEVICES leaves no GPU", help="unset CUDA_VISIBLE_DEVICES")
    alone: Sets = [(g,) for g in seen]
    pairs: Sets = list(permutations(seen, 2))[:_MAX_PAIRS]
    found: list[GpuTest] = []
    at = 0.0
    for test in TESTS:
        sets = alone if test in (_SMOKE, _TRITON) else pairs
        if wanted and test.name not in wanted:
            continue
        if test is _TRITON and (environment is None or environment.package("triton") is None):
            continue
        if test is _PEER_IPC:
            # What the driver denies is no fault, and nobody will try to share memory that way.
            denied = {one.gpus for one in found if one.outcome == "denied"}
            sets = [p for p in pairs if tuple(g.index for g in p) not in denied]
        if test is _ALL_REDUCE and pairs:
            sets = [tuple(seen)]
        if not sets:
            continue
        answer = _run(test, sets, environment, variables)
        if not isinstance(answer, Ok):
            return answer
        at = answer.at
        found += answer.value
        if any(one.outcome == "hung" for one in answer.value):
            break
    return Ok(value=tuple(found), at=at)


def visible(gpus: Sequence[Gpu], variable: str | None) -> tuple[Gpu, ...]:
    """The GPUs that CUDA shows a program with this CUDA_VISIBLE_DEVICES, in its order; None is all.

    Numbers are taken in the order of the bus. The list ends at the first entry that names no GPU: CUDA Programming Guide,
    "CUDA Environment Variables".
    """
    if variable is None:
        return tuple(gpus)
    shown: list[Gpu] = []
    for name in (part.strip() for part in variable.split(",")):
        hits = [
            g for g in gpus if (name.isdigit() and g.index == int(name)) or (name.startswith("GPU-") and g.uuid.startswith(name))
        ]
        if len(hits) != 1:
            break
        shown.append(hits[0])
    return tuple(shown)


def _run(test: Test, sets: Sets, environment: Environment | None, variables: Mapping[str, str]) -> Reading[tuple[GpuTest, ...]]:
    capabilities = {g.capability.value.replace(".", "") for one in sets for g in one if isinstance(g.capability, Ok)}
    if len(capabilities) != 1:
        return Failed(error="the GPUs are of several compute capabilities, or do not tell theirs")
    python = environment.python if test is _TRITON and environment is not None else sys.executable
    arguments = ["--limit", str(test.limit_s), "--capability", capabilities.pop()]
    if test is _ALL_REDUCE:
        arguments += ["--last", nccl_library.path(environment, variables)]
    arguments += [str(asset("kernels", test.source)), *(",".join(g.uuid for g in one) for one in sets)]
    answer = probe.run("run_gpu_program", arguments, python=python, limit_s=_COMPILER_S + test.limit_s * len(sets))
    if not isinstance(answer, Ok):
        return answer
    index = {g.uuid: g.index for one in sets for g in one}
    try:
        runs = msgspec.convert(answer.value.get("runs"), tuple[_Run, ...])
        tests = tuple(
            msgspec.convert({**msgspec.to_builtins(r), "gpus": [index[g] for g in r.gpus], "test": test.name}, GpuTest)
            for r in runs
        )
    except (msgspec.ValidationError, KeyError) as error:
        return Failed(error=f"the answer of the test {test.name} is not as expected: {error}")
    return Ok(value=tests, at=answer.at, took_s=answer.took_s)
