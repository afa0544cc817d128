"""Record every hang that the demo and the test programs can produce, for the replay tests: python -m tests.recordings.make

Overwrites tests/recordings/hangs. Run it when the snapshot format grows a field that rules depend on.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

from gpudiag.demo.run import start
from gpudiag.demo.scenarios import SCENARIOS
from gpudiag.model.snapshot import Observation
from gpudiag.rules.hang.no_progress_while_running import MIN_AGE_S
from gpudiag.session import tokens
from gpudiag.session.pipeline import servers_of
from gpudiag.session.record import save
from tests.acceptance.test_programs import HANGS, LOOK_ALIKES, TORCH
from tests.programs.harness import running, torch_python
from tests.support.checkout import ROOT
from tests.support.diagnosing import describe, judge, look_at

HANGING = Path(__file__).parent / "hangs"

PLACES = {str(ROOT): "/srv/gpudiag", sys.base_prefix: "/usr", sys.prefix: "/opt/venv", os.uname().nodename: "node-1"}
"""Where this checkout and its interpreter lie is nobody's business: recordings name neutral places."""


def _add_torch_prefix() -> None:
    """torch may live in an environment of its own ($GPUDIAG_TORCH_PYTHON)."""
    python = torch_python()
    if python is not None:
        PLACES.setdefault(str(Path(python).absolute().parent.parent), "/opt/venv")


def neutral(observation: Observation) -> Observation:
    text = msgspec.json.encode(observation).decode()
    for place, name in sorted(PLACES.items(), key=lambda kv: -len(kv[0])):
        text = text.replace(place, name)
    return msgspec.json.decode(text, type=Observation)


def keep(name: str, code: str | None, observation: Observation) -> None:
    path = HANGING / f"{code or 'quiet'}-{name}.gpudiag"
    save(neutral(observation), path, force=True)
    print(f"{path.name:60} {path.stat().st_size / 1000:6.0f} kB  {describe(judge(observation))[:90]}", file=sys.stderr)


def with_tokens(observation: Observation) -> Observation:
    """As `attach --confirm`: with what the server itself says, where it would be called livelocked."""
    for door in tokens.doors(observation, servers_of(observation), [judge(observation)]):
        observation = tokens.with_counts(observation, door)
    return observation


def main() -> None:
    _add_torch_prefix()
    for seed, scenario in enumerate(SCENARIOS):
        with start(scenario.name, ranks=4, seed=seed) as server:
            server.wait_until_stuck()
            keep(scenario.name, scenario.expected_code, look_at(server.root_pid, confirm=True))
    for case in (*HANGS, *LOOK_ALIKES, *TORCH):
        style = "torchrun" if case.torch else "title"
        python = torch_python() if case.torch else None
        with running(case.program, ranks=3, victim=1, style=style, python=python, **case.options) as program:
            keep(case.name, case.code, look_at(program.root_pid, confirm=True))
    with running("livelock", ranks=3) as program:
        time.sleep(MIN_AGE_S + 1.0)  # a request has to be this old before anybody may call it unanswered
        keep("livelock", "GPD321", look_at(program.root_pid, confirm=True))
    with running("long_answer", ranks=3) as program:
        time.sleep(MIN_AGE_S + 1.0)
        keep("long_answer", None, with_tokens(look_at(program.root_pid, confirm=True)))


if __name__ == "__main__":
    main()
