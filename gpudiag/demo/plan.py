"""One run of the demo, drawn from a seed: who is the victim, who is connected to whom, who starts first."""

from __future__ import annotations

import random

from msgspec import Struct

from gpudiag.demo.scenarios import SCENARIOS, Scenario
from gpudiag.errors import UsageError

FEWEST_RANKS, MOST_RANKS = 2, 8
VISITED_BIT = 5


class Names(Struct, frozen=True, kw_only=True):
    """What the demo's processes and files are called. Nothing but the demo may depend on any of it."""

    prefix: str = "demo"
    lock: str = "lock"
    kernel: str = "fused_moe"


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that the seed decides. `victim` is -1 where the scenario has none."""

    scenario: Scenario
    seed: int
    ranks: int
    victim: int
    start_order: tuple[int, ...]
    topology: str
    family: str
    polling: bool
    fault_step: int
    variant: int
    extra_threads: int = 0

    @property
    def visited(self) -> bool:
        """Whether a client that has its answer keeps its connection to the idle server."""
        return self.scenario.name == "idle" and bool(self.variant >> VISITED_BIT & 1)


def scenario_named(name: str) -> Scenario:
    """Raises UsageError for a name that is none."""
    for scenario in SCENARIOS:
        if scenario.name == name:
            return scenario
    raise UsageError(f"there is no scenario called {name!r}", help="gpudiag demo --list")


def draw(scenario: Scenario, *, ranks: int, victim: int | None, seed: int | None, extra_threads: int = 0) -> Plan:
    """Draw a run. Raises UsageError if `ranks` or `victim` is out of range."""
    if not FEWEST_RANKS <= ranks <= MOST_RANKS:
        raise UsageError(f"the demo runs {FEWEST_RANKS} to {MOST_RANKS} ranks, not {ranks}")
    if victim is not None and not 0 <= victim < ranks:
        raise UsageError(f"with {ranks} ranks the victim is one of 0 to {ranks - 1}, not {victim}")
    if seed is None:
        seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)  # noqa: S311 - a run must be the same again for the same seed
    drawn = rng.randrange(ranks)
    order = rng.sample(range(ranks), ranks)
    return Plan(
        scenario=scenario,
        seed=seed,
        ranks=ranks,
        victim=-1 if scenario.name == "idle" else drawn if victim is None else victim,
        start_order=tuple(order),
        topology=rng.choice(("ring", "tree")),
        family=rng.choice(("tcp", "unix")),
        polling=rng.random() < 0.5,
        fault_step=rng.randrange(1, 6),
        variant=rng.randrange(2**8),
        extra_threads=extra_threads,
    )
