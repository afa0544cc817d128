"""The ways in which the demo server can be made to hang, or only to look like it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Scenario(Struct, frozen=True, kw_only=True):
    """`expected_code` is what a right diagnosis says; `hangs` is false for the two that only look like a hang."""

    name: str
    summary: str
    expected_code: str
    hangs: bool = True


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="stale-lock",
        summary="a rank waits for the lock file of a build that was killed",
        expected_code="GPD307",
    ),
    Scenario(
        name="lock-cycle",
        summary="two threads of a rank hold one lock each and want the other's",
        expected_code="GPD306",
    ),
    Scenario(
        name="rank-missing",
        summary="a rank takes a branch of its own and never comes to the all-reduce",
        expected_code="GPD301",
    ),
    Scenario(
        name="rank-dead",
        summary="a rank was killed and its sockets stayed open in another process",
        expected_code="GPD304",
    ),
    Scenario(name="rank-stopped", summary="a rank is stopped by SIGSTOP", expected_code="GPD305"),
    Scenario(
        name="queue-to-nobody",
        summary="a rank reads a pipe whose writer died while others keep its write end open",
        expected_code="GPD309",
    ),
    Scenario(
        name="slow-compile",
        summary="a rank waits for a compiler that is hard at work",
        expected_code="GPD314",
        hangs=False,
    ),
    Scenario(name="idle", summary="nothing is asked of the server", expected_code="GPD318", hangs=False),
)

DEFAULT_SCENARIO: Final = "stale-lock"
