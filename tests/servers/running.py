"""Starts a real vLLM or SGLang on the CPU the way `gpudiag launch` does, and asks the questions that the tests ask."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpudiag.collect.http_ask import ask
from gpudiag.collect.metrics import read_metrics
from gpudiag.launch.options import SuperviseOptions
from gpudiag.model.metrics import ServerMetrics
from gpudiag.model.reading import Ok
from gpudiag.model.report import Report
from gpudiag.model.run import LaunchPlan, RunProgress
from tests.launch.launching import Launched, alive, free_port, launched
from tests.servers import environments
from tests.support import processes
from tests.support.processes import wait_until

Engine = Literal["vllm", "sglang"]

START_S = 400.0
"""For a start on two cores that others use too; alone it takes under a minute."""
SOON_S = 10.0
"""From a fault, or from the end of the server, to its verdict."""

OVERLAY = "overlay"
"""Link in a test's directory to the package that it damaged."""

_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One place to start servers at."""

    models: Path
    directory: Path

    @property
    def target(self) -> Path:
        return self.models / "target"

    @property
    def drafter(self) -> Path:
        return self.models / "eagle3"

    def copy_of(self, model: Path) -> Path:
        """A copy of a model to be damaged."""
        return Path(shutil.copytree(model, self.directory / f"damaged-{model.name}"))

    def plan(
        self,
        engine: Engine,
        *arguments: str,
        model: Path | None = None,
        tensor_parallel: int = 2,
        port: int | None = None,
        packages: Path | None = None,
        **environment: str,
    ) -> LaunchPlan:
        """`arguments` and `environment` come after what every server here gets; `packages` goes before its site-packages."""
        python = environments.python_of(engine)
        port = port or free_port()
        folder = self.directory / f"run-{engine}-{port}"
        model = model or self.target
        build = _vllm if engine == "vllm" else _sglang
        argv, variables = build(python, model, port, tensor_parallel)
        variables |= _OFFLINE | environment | ({"PYTHONPATH": str(packages)} if packages else {})
        return LaunchPlan(
            run_id=folder.name,
            run_directory=str(folder),
            engine=engine,
            version=None,
            python=str(python),
            argv=(*argv, *arguments),
            environment=tuple(variables.items()),
            settings=(),
            profile=None,
            model=str(model),
            drafter=None,
            host="127.0.0.1",
            port=port,
            tensor_parallel=tensor_parallel,
            checkpoint_bytes=sum(f.stat().st_size for f in model.glob("*.safetensors")),
        )


def _binding(tensor_parallel: int) -> str:
    """Each rank on a core of its own; both engines refuse to bind two ranks to one NUMA node by themselves."""
    return "0|1" if tensor_parallel == 2 else "0-1"


def _vllm(python: Path, model: Path, port: int, tensor_parallel: int) -> tuple[list[str], dict[str, str]]:
    argv = [str(python.with_name("vllm")), "serve", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--tensor-parallel-size", str(tensor_parallel), "--max-model-len", "512"]
    argv += ["--max-num-seqs", "8", "--enforce-eager"]
    return argv, {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": _binding(tensor_parallel),
    }


def _sglang(python: Path, model: Path, port: int, tensor_parallel: int) -> tuple[list[str], dict[str, str]]:
    argv = [str(python), "-m", "sglang.launch_server", "--model-path", str(model), "--served-model-name", "tiny"]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--tp", str(tensor_parallel)]
    argv += ["--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--disable-radix-cache"]
    argv += ["--disable-overlap-schedule", "--max-total-tokens", "4096", "--context-length", "512"]
    argv += ["--mem-fraction-static", "0.2", "--enable-metrics", "--skip-server-warmup"]
    return argv, {"SGLANG_USE_CPU_ENGINE": "1", "SGLANG_CPU_OMP_THREADS_BIND": _binding(tensor_parallel)}


def _titled(pid: int, title: str) -> bool:
    try:
        return processes.title(pid) == title
    except OSError:
        return False


class Server(Launched):
    """A real server that was launched."""

    def member(self, title: str, limit_s: float = START_S) -> int:
        """The pid of the process with this title, once there is one: 'VLLM::Worker_TP1', 'sglang::scheduler_TP1'."""
        found: list[int] = []

        def there() -> bool:
            found[:] = [pid for pid in self.family if _titled(pid, title)]
            return bool(found)

        wait_until(there, f"a process {title}", limit_s)
        return found[0]

    def serving(self) -> None:
        """Until it is ready."""
        end = self.until(lambda p: p.state not in ("starting", "stalled"), "the server is ready", START_S)
        assert end.state == "serving", f"{end}\n{self.run.server_log.read_text(errors='replace')[-3000:]}"

    def complete(self, tokens: int) -> dict[str, Any]:
        """Ask for a completion at temperature 0."""
        document = {"model": "tiny", "prompt": "def hello", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        url = f"http://127.0.0.1:{self.plan.port}/v1/completions"
        reply = ask(url, deadline_s=60.0, most_bytes=1 << 20, document=document)
        assert reply.status == 200, reply.body
        answer: dict[str, Any] = json.loads(reply.body)
        return answer

    def metrics(self) -> ServerMetrics:
        reading = read_metrics(f"http://127.0.0.1:{self.plan.port}")
        assert isinstance(reading, Ok), reading
        return reading.value

    def verdict_within(self, condition: Callable[[RunProgress], bool], began: float, what: str) -> Report:
        """The report once `condition` holds, which must be no later than SOON_S after `began` (monotonic)."""
        self.until(condition, what, 60.0)
        took = time.monotonic() - began
        report = self.report
        assert took <= SOON_S, f"{what}: after {took:.1f} s: {report.verdict}"
        return report

    def after_its_end(self) -> Report:
        """The report on a server that ends by itself, which must be there soon after its root has gone."""
        root = self.started.server_pid
        wait_until(lambda: not alive(root), "the end of the server", START_S)
        ended = time.monotonic()
        return self.verdict_within(lambda p: p.state in ("crashed", "killed", "stopped"), ended, "the end is judged")

    def ends_without_a_trace(self, family: list[int]) -> None:
        """No process of it is left."""
        self.wait_for_end(60.0)
        assert [pid for pid in family if alive(pid)] == []


@contextmanager
def server(plan: LaunchPlan, **options: Any) -> Iterator[Server]:
    with launched(plan, SuperviseOptions(tui=False, **options)) as run:
        yield Server(run.started, run.plan)


def damage_package(engine: Engine, module: str, directory: Path, change: Callable[[str], str]) -> Path:
    """A copy of the engine's package in which one file is another; the path to put before site-packages.

    The other files are the same ones (hard links, so that it lies beside the environments), and the environment stays as it
    is. OVERLAY in `directory` leads there.
    """
    site = next((environments.environment(engine) / "lib").glob("python3.*")) / "site-packages"
    overlay = environments.home() / f"damaged-{engine}-{os.getpid()}-{time.monotonic_ns()}"
    package = module.partition("/")[0]
    shutil.copytree(site / package, overlay / package, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__"))
    file = overlay / module
    text = change(file.read_text("utf-8"))
    file.unlink()
    file.write_text(text, "utf-8")
    (directory / OVERLAY).symlink_to(overlay)
    return overlay


def stop(pid: int) -> float:
    """Stop a process; when (monotonic)."""
    os.kill(pid, signal.SIGSTOP)
    return time.monotonic()


def replaced(plan: LaunchPlan, **fields: Any) -> LaunchPlan:
    return msgspec.structs.replace(plan, **fields)
