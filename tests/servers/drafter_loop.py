"""Generate, extract, train, serve, measure, replay: the whole way from a target to a drafter that a real server serves.

    make loop                                             vLLM on a CPU, with the tiny target of tiny_model.py
    make loop TARGET=DIR LOOP_ARGS='--steps 1000'
    python -m tests.servers.drafter_loop --engine sglang --python P --target DIR --out OUT -- --attention-backend triton

Only commands that a user has: `gpudiag launch` serves the target alone, `drafter train` has it answer prompts and learns from
them (the server is ended once the answers are kept), `gpudiag launch` serves target and drafter, `drafter measure` and
`drafter replay` judge it on the answers to other prompts: functions of other modules of the standard library. What follows --
goes to the engine. OUT/loop.json has the figures, OUT/*.json what each command said, OUT/*.err how.

It exits with 1 unless server and replay both have more tokens a round than --least, within --within of each other, and nothing is
called wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gpudiag.model.replay import DraftCounts
from tests.servers import environments

ROOT: Final = Path(__file__).resolve().parents[2]
LEARNT: Final = (
    *("ast", "asyncio.base_events", "bdb", "collections", "configparser", "copy", "csv", "dataclasses", "datetime", "difflib"),
    *("dis", "doctest", "enum", "fractions", "ftplib", "functools", "glob", "gzip", "heapq", "http.client", "imaplib", "inspect"),
    *(
        "ipaddress",
        "json.decoder",
        "locale",
        "logging",
        "mailbox",
        "mimetypes",
        "optparse",
        "pathlib",
        "plistlib",
        "pdb",
        "pickle",
    ),
)
HELD_OUT: Final = ("argparse", "calendar", "cmd", "shutil", "socketserver", "tarfile", "textwrap", "threading", "uuid", "zipfile")
"""Modules of the standard library: text that is everywhere, and none of it in both."""
PROMPT_LINES: Final = 3
ENGINE_OPTIONS: Final = {
    "vllm": ("--max-model-len", "1024", "--max-num-seqs", "16", "--enforce-eager"),
    "sglang": ("--mem-fraction-static", "0.3", "--max-running-requests", "16"),
}
ROUNDS: Final = {"vllm": ("--per-request-spec-decode-metrics", "detailed"), "sglang": ()}
"""What makes an engine say what became of each draft; SGLang counts by request in any case."""
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}


def prompts_of(modules: Sequence[str], most: int) -> list[str]:
    """The first lines of functions and classes, as many from each module as come."""
    by_module = []
    for name in modules:
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        assert spec.origin is not None, name
        lines = Path(spec.origin).read_text("utf-8").splitlines()
        starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "class "))]
        by_module.append(["\n".join(lines[i : i + PROMPT_LINES]) + "\n" for i in starts])
    longest = max(map(len, by_module))
    return [module[i] for i in range(longest) for module in by_module if i < len(module)][:most]


def write_prompts(path: Path, prompts: Sequence[str]) -> Path:
    path.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts), "utf-8")
    return path


class Loop:
    """The commands, one after the other, and how long each took."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out: Path = options.out.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{options.port}"
        self.began = time.monotonic()
        self.waited_s = 0.0
        self.steps: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def timed(self, step: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps.append({"step": step, "took_s": round(time.monotonic() - began, 1)})
            print(f"{step}: {self.steps[-1]['took_s']} s", flush=True)

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "gpudiag", *map(str, arguments)]

    def start(self, name: str, *arguments: object) -> subprocess.Popen[bytes]:
        """A command of gpudiag whose output goes to files named after it."""
        with (self.out / f"{name}.json").open("wb") as said, (self.out / f"{name}.err").open("wb") as talk:
            environ = {**_OFFLINE, **os.environ}
            return subprocess.Popen(self.command(*arguments), stdout=said, stderr=talk, cwd=ROOT, env=environ)

    def run(self, name: str, *arguments: object) -> dict[str, Any]:
        """What a command says, as JSON."""
        self.start(name, *arguments).wait(self.options.limit)
        return self.said(name)

    def said(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.out / f"{name}.json").read_bytes())
        except ValueError:
            raise SystemExit(f"{name}: {(self.out / f'{name}.err').read_text(errors='replace')[-2000:]}") from None
        return found

    @contextlib.contextmanager
    def served(self, name: str, draft: Path | None, *engine: str) -> Iterator[None]:
        """A server that is ready; `name` is that of the step and of its files."""
        with self._alone():
            given = ["launch", self.options.engine, "--no-tui", "--tp", "1", "--port", self.options.port]
            given += ["--python", self.options.python, "--model", self.options.target, "--record", self.out / "runs"]
            given += ["--draft", draft] if draft is not None else ["--no-draft"]
            given += ["--force"] if self.options.force else []
            launch = self.start(name, *given, "--", *self.options.engine_options, *engine)
            try:
                with self.timed(name):
                    self._ready(launch, name)
                yield
            finally:
                with self.timed(f"end of {name}"):
                    _end(launch)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if self.options.lock is None:
            yield
            return
        began = time.monotonic()
        with self.options.lock.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.waited_s += time.monotonic() - began
            yield

    def _ready(self, launch: subprocess.Popen[bytes], name: str) -> None:
        deadline = time.monotonic() + self.options.ready
        while time.monotonic() < deadline and launch.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:  # noqa: S310
                if answer.status == 200:
                    return
            time.sleep(0.2)
        state = "is not ready" if launch.poll() is None else f"ended with {launch.returncode}"
        raise SystemExit(f"{name} {state}: {(self.out / f'{name}.err').read_text(errors='replace')[-2000:]}")

    def train(self) -> dict[str, Any]:
        """Answers of the target alone, and a drafter that begins with random weights."""
        o, kept = self.options, self.out / "answers.jsonl"
        kept.unlink(missing_ok=True)
        prompts = write_prompts(self.out / "learnt.jsonl", prompts_of(LEARNT, o.prompts))
        given = ["drafter", "train", self.url, "--target", o.target, "-o", self.out / "trained", "--prompts", prompts, "--raw"]
        given += [
            "--max-tokens",
            o.max_tokens,
            "--concurrency",
            o.concurrency,
            "--save",
            kept,
            "--steps",
            o.steps,
            "--python",
            o.python,
        ]
        given += ["--minutes", o.minutes, "--device", o.device, "--json"]
        with self.served("serve the target", None), self.timed("generate"):
            training = self.start("train", *given)
            while not kept.exists() and training.poll() is None:
                time.sleep(0.1)
        with self.timed("extract and train"):
            training.wait(o.limit)
        return self.said("train")

    def judge(self, draft: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the server makes of the drafter on prompts that it did not learn from, and what a replay says of that."""
        o = self.options
        prompts = write_prompts(self.out / "held-out.jsonl", prompts_of(HELD_OUT, o.held_out))
        asked = [self.url, "--prompts", prompts, "--raw", "--max-tokens", o.max_tokens, "--json", "--fail-on", "never"]
        answers = self.out / "held-out-answers.jsonl"
        given = ["drafter", "replay", draft, *asked, "--target", o.target, "--python", o.python, "--device", o.device]
        with self.served("serve the drafter", draft, *ROUNDS[o.engine]):
            with self.timed("measure"):
                measured = self.run("measure", "drafter", "measure", *asked, "--requests", o.held_out, "--concurrency", 4)
            with self.timed("answers"):
                replaying = self.start("replay", *given, "--save", answers)
                while not answers.exists() and replaying.poll() is None:
                    time.sleep(0.1)
        with self.timed("replay"):
            replaying.wait(o.limit)
        return measured, self.said("replay")

    def all(self) -> dict[str, Any]:
        trained = self.train()
        measured, replayed = self.judge(Path(trained["trained"]["drafters"][self.options.engine]))
        counts = [msgspec.convert(replayed["replay"][name], DraftCounts) for name in ("measured", "replayed")]
        lengths = [found.length for found in counts]
        apart = [abs(one - other) for one, other in zip(*(found.survival for found in counts), strict=True)]
        wrong = [f["code"] for report in (measured, replayed) for f in report["findings"] if f["severity"] == "error"]
        within = max(abs(lengths[0] - lengths[1]), *apart) <= self.options.within
        return {
            "engine": self.options.engine,
            "right": min(lengths) > self.options.least and within and not wrong,
            "total_s": round(time.monotonic() - self.began - self.waited_s, 1),
            "waited_for_lock_s": round(self.waited_s, 1),
            "trained": trained["trained"],
            "held_out_texts": trained["after"],
            "measure": measured["measurement"]["acceptance"],
            "measured": lengths[0],
            "replayed": lengths[1],
            "positions_apart": [round(a, 4) for a in apart],
            "verdicts": [measured["verdict"]["title"], replayed["verdict"]["title"]],
            "findings": sorted(f["code"] for report in (measured, replayed) for f in report["findings"]),
            "steps": self.steps,
        }


def _end(launch: subprocess.Popen[bytes]) -> None:
    """What is left of the server ends with its launch."""
    launch.terminate()
    try:
        launch.wait(90)
    except subprocess.TimeoutExpired:
        launch.kill()
        launch.wait()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["vllm", "sglang"], default="vllm")
    parser.add_argument("--python", type=Path, help="interpreter with the engine; default: the environment of make test-servers")
    parser.add_argument("--target", type=Path, help="a small model without chat template; default: the one of tiny_model.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--port", type=int, default=8470)
    parser.add_argument("--prompts", type=int, default=320, help="to learn from (default 320)")
    parser.add_argument("--held-out", type=int, default=24, help="prompts to judge by (default 24)")
    parser.add_argument("--max-tokens", type=int, default=160, help="of an answer (default 160)")
    parser.add_argument("--concurrency", type=int, default=16, help="answers at a time (default 16)")
    parser.add_argument("--steps", type=int, default=800, help="of the training (default 800)")
    parser.add_argument("--minutes", type=float, default=5.0, help="that the training may take (default 5)")
    parser.add_argument("--device", default="auto", help="where torch computes (default auto)")
    parser.add_argument("--force", action="store_true", help="start in spite of what the checks find")
    parser.add_argument("--lock", type=Path, help="file that is locked while a server runs")
    parser.add_argument("--ready", type=float, default=400.0, help="seconds that a start may take (default 400)")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds that any other step may take (default 1200)")
    parser.add_argument("--least", type=float, default=1.8, help="tokens a round (default 1.8)")
    parser.add_argument(
        "--within", type=float, default=0.02, help="between server and replay, of length and of each position (default 0.02)"
    )
    parser.add_argument("engine_options", nargs="*", help="for the engine, behind --; default: as for a tiny model")
    options = parser.parse_args()
    options.engine_options = options.engine_options or list(ENGINE_OPTIONS[options.engine])
    options.python = options.python or environments.make(options.engine) / "bin" / "python"
    if options.target is None:
        place = options.out / "models"
        subprocess.run([str(options.python), str(environments.HERE / "tiny_model.py"), str(place)], check=True)
        options.target = place / "target"
    options.target = options.target.resolve()
    return options


def main() -> int:
    loop = Loop(arguments())
    result = loop.all()
    (loop.out / "loop.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0 if result["right"] else 1


if __name__ == "__main__":
    sys.exit(main())
