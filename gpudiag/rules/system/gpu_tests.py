"""What the checks that --active makes possible share: tests that were really run on the GPUs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from gpudiag.model.facts import Facts, GpuTest
from gpudiag.model.reading import NOT_ASKED, Ok
from gpudiag.rules.confidence import Link
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown, unread

BAD: Final = frozenset({"wrong-data", "hung", "failed"})
TESTS_OF: Final[dict[str, tuple[str, ...]]] = {
    "GPD218": ("smoke",),
    "GPD223": ("triton",),
    "GPD403": ("peer_copy", "peer_ipc"),
    "GPD219": ("all_reduce",),
}
"""What each check needs of --active."""
WEDGED: Final = "the GPUs may be busy for ever now: nvidia-smi, and reset them or reboot before you go on"


def runs(facts: Facts, tests: Collection[str], otherwise: str) -> tuple[GpuTest, ...] | Answer:
    """The runs of these tests, or how a check that needs them ends; `otherwise` says why there may be none."""
    reading = facts.active
    if not isinstance(reading, Ok):
        return skipped("a test that uses the GPUs: --active") if reading == NOT_ASKED else unread(reading)
    made = tuple(one for one in reading.value if one.test in tests)
    unbuilt = next((one for one in made if one.outcome == "not-built"), None)
    if unbuilt is not None and not any(one.outcome in BAD for one in made):
        return unknown(
            f"the test could not be made: {unbuilt.detail}",
            "put nvcc of the CUDA toolkit on PATH, and name the server's interpreter with --python",
        )
    if made:
        return made
    hung = next((one for one in reading.value if one.outcome == "hung"), None)
    return skipped(f"not tried after the test {hung.test}, which never ended" if hung is not None else otherwise)


def judged(
    check: Check,
    facts: Facts,
    tests: Collection[str],
    *,
    otherwise: str,
    title: Callable[[GpuTest], str],
    steps: Callable[[GpuTest], tuple[str, ...]],
    sound: Callable[[tuple[GpuTest, ...]], str],
) -> Answer:
    """One finding for each run of these tests that ended badly; `sound` says what it means that none did."""
    made = runs(facts, tests, otherwise)
    if isinstance(made, Answer):
        return made
    findings = (check.finding(title(one), [proof(one)], steps(one)) for one in made if one.outcome in BAD)
    return found(findings, passed(sound(made)))


def proof(one: GpuTest) -> Link:
    return seen("gpu-test", f"{one.test} {one.outcome} after {one.took_s:.1f} s", one.detail)
