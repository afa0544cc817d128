"""Faults of a start: what `gpudiag launch` refuses, and what its supervisor finds out about a server of real small processes.

The supervisor's patience is cut to a tenth, so that a hang is looked at after seconds; the time to its verdicts says nothing.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.launch.options import SuperviseOptions
from gpudiag.model.facts import Asked
from gpudiag.model.run import RunState
from tests.doctor.checkpoints import drafter, target, weights
from tests.doctor.machines import facts, gpu, gpu_set, ok
from tests.drafter.test_asking_the_engine import SGLANG
from tests.faults.asking import NOTHING, refusal
from tests.faults.case import Culprit, Fault, Report, Staged, Variation
from tests.faults.machines import doctor
from tests.launch.launching import Launched, free_port, launched, plan_of
from tests.launch.requests import table
from tests.launch.test_command import ENGINE
from tests.support.checkout import ROOT

HASTY = SuperviseOptions(tui=False, patience=0.1)
REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
Act = Callable[[Launched, int], AbstractContextManager[object] | None]
"""What is done to a server that serves, given the rank that is the victim. What it returns is closed at the end."""


def supervised(
    name: str, code: str | None, planted: str, *words: str, until: RunState, act: Act | None = None, **who: Any
) -> Fault:
    """A server of two ranks under the supervisor, whose report is read as soon as the run is in the state `until`.

    Where `who` says "victim", it is the rank that is the victim this time.
    """

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        victim = vary.rng.randrange(2)
        plan = plan_of(vary.directory / "run", argv=("--victim", str(victim), *(w.format(d=vary.directory) for w in words)))
        with ExitStack() as stack:

            def ask(_: tuple[str, ...]) -> Report:
                run = stack.enter_context(launched(plan, HASTY))
                if act is not None:
                    run.ready()
                    stack.enter_context(act(run, victim) or ExitStack())
                seen = run.until(lambda p: p.state == until and (p.report is not None or not code), f"it is {until}", 60.0)
                return said_by(run, seen.report)

            culprit = Culprit(**{key: victim if value == "victim" else value for key, value in who.items()})  # type: ignore[arg-type]
            yield Staged(("launch",), culprit, ask)

    return Fault(name=f"launch-{name}", planted=planted, code=code, ground="launch", stage=stage, live=True)


def said_by(run: Launched, report: str | None) -> Report:
    """The report that the run points to; where there was no reason to look, that nothing was said."""
    if report is None:
        return {"verdict": NOTHING, "findings": []}
    found: Report = msgspec.json.decode((run.run.path / report).read_bytes())
    return found


def request(run: Launched, _: int) -> AbstractContextManager[object]:
    """One that waits for its answer."""
    client = socket.create_connection(("127.0.0.1", run.plan.port))
    client.sendall(REQUEST)
    return closing(client)


def kill_root(run: Launched, _: int) -> None:
    os.kill(run.started.server_pid, signal.SIGKILL)


def preflight(
    name: str, code: str | None, planted: str, engine: str, *words: str, visible: str | None = None, **size: int
) -> Fault:
    """A start on a sound host with four GPUs, judged with the options that the real engine has (SGLang 0.5.23, vLLM 0.32)."""
    asked = Asked(engine=engine, arguments=words, **{"tp": 1, "pp": 1, "dp": 1, **size})  # type: ignore[arg-type]
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    host = facts(asked, gpus=gpu_set(*map(gpu, range(4))), environment=environment, flags=ok(table(engine)))
    says = words[0] if code == "GPD701" else None
    return doctor(f"{engine}-{name}", code, planted, lambda _: host, says=says)


def refused(name: str, code: str | None, planted: str, plant: Callable[[Path, ExitStack], list[str]], **who: Any) -> Fault:
    """What `gpudiag launch` says before a start, with a package called sglang that takes its options and starts nothing."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        site = vary.directory / "site"
        for name, source in {**SGLANG, "sglang/launch_server.py": ENGINE}.items():
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_text(source)
        model = target(vary.directory / "model")
        given = ("launch", "sglang", "--model", str(model), "--python", sys.executable, "--dry-run")
        paths = {f"XDG_{n}_HOME": str(vary.directory / n.lower()) for n in ("CACHE", "STATE", "CONFIG")}
        with ExitStack() as stack:
            words = plant(vary.directory, stack)

            def ask(arguments: tuple[str, ...]) -> Report:
                return refusal(arguments, PYTHONPATH=f"{ROOT}:{site}", **paths)

            yield Staged((*given, *words), Culprit(**who), ask)

    return Fault(name=f"launch-{name}", planted=planted, code=code, ground="launch", stage=stage)


def port_taken(_: Path, stack: ExitStack) -> list[str]:
    holder = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return ["--no-draft", "--port", str(holder.getsockname()[1])]


def weight_renamed(directory: Path, _: ExitStack) -> list[str]:
    renamed = {name.replace("midlayer", "middle"): tensor for name, tensor in weights().items()}
    return ["--draft", str(drafter(directory / "eagle3", renamed)), "--port", str(free_port())]


def option_misspelt(_directory: Path, _: ExitStack) -> list[str]:
    return ["--no-draft", "--port", str(free_port()), "--", "--max-running-reqs", "3"]


def nothing_wrong(_directory: Path, _: ExitStack) -> list[str]:
    return ["--no-draft", "--port", str(free_port()), "--", "--max-running-requests", "3"]


EAGLE = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")

FAULTS = (
    supervised("crash", "GPD220", "a rank raises while it starts", "--fault", "crash", until="crashed", rank="victim"),
    supervised(
        "syntax", "GPD201", "a syntax error in the root's first import", "--fault", "syntax", until="crashed", file="llama.py"
    ),
    supervised("asleep", "GPD329", "the ranks sleep for ten minutes before they serve", "--fault", "asleep", until="stalled"),
    supervised(
        "lock-while-serving",
        "GPD322",
        "a rank takes a lock twice for the second request, and nobody gives it back",
        *("--fault", "wedge"),
        until="stalled",
        act=request,
        rank="victim",
    ),
    supervised("root-killed", "GPD210", "SIGKILL to the root while it serves", until="killed", act=kill_root),
    refused("port-taken", "GPD114", "the port is taken", port_taken),
    refused("weight-renamed", "GPD605", "a drafter whose layer has another name", weight_renamed, says="no place in SGLang"),
    refused("option-misspelt", "GPD701", "an option that is misspelt", option_misspelt, says="--max-running-reqs"),
    preflight("too-few-gpus", "GPD702", "--tp 8 on four GPUs", "sglang", tp=8),
    preflight("too-few-gpus", "GPD702", "two ranks of four replicas on four GPUs", "vllm", tp=2, dp=4),
    preflight(
        "gpu-not-there", "GPD704", "CUDA_VISIBLE_DEVICES names GPU 7 of four, for two ranks", "sglang", visible="0,7,1", tp=2
    ),
    preflight("gpu-twice", "GPD704", "CUDA_VISIBLE_DEVICES names a GPU twice", "vllm", visible="0,0,1"),
    preflight("no-steps", "GPD705", "a topk without a number of steps", "sglang", *EAGLE[:2], "--speculative-eagle-topk", "4"),
    preflight(
        "page-size",
        "GPD705",
        "a tree with pages of 64 on a backend that takes none",
        "sglang",
        *EAGLE,
        *("--speculative-eagle-topk", "4", "--page-size", "64", "--attention-backend", "trtllm_mha"),
    ),
    preflight("unknown-option", "GPD701", "an option that vLLM does not have", "vllm", "--speculative-draft-tokens", "3"),
)

LOOK_ALIKES = (
    supervised("comes-up", None, "nothing is wrong", until="serving"),
    supervised("says-nothing", None, "the server logs nothing at all", "--fault", "mute", until="serving"),
    supervised("naps", None, "the ranks sleep 8 s at a time before they serve", "--fault", "naps", until="starting", act=None),
    supervised("long-request", None, "a request takes long", "--fault", "slow", until="serving", act=request),
    refused("nothing-wrong", None, "options that there are, and a free port", nothing_wrong),
    preflight("as-many-gpus", None, "--tp 4 on four GPUs", "sglang", tp=4),
    preflight("dp-attention", None, "replicas that share the GPUs", "sglang", "--enable-dp-attention", tp=4, dp=4),
    preflight("ray", None, "eight ranks in a Ray cluster", "vllm", "--distributed-executor-backend", "ray", tp=8),
    preflight("shown-gpus", None, "CUDA_VISIBLE_DEVICES shows as many as are needed", "vllm", visible="GPU-2,gpu-3", tp=2),
    preflight("eagle3", None, "EAGLE-3 on a backend that drafts", "sglang", *EAGLE, "--attention-backend", "fa3"),
)
