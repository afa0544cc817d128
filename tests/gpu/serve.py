#!/usr/bin/env python3
"""A real SGLang with EAGLE-3 on two GPUs, attached to while it starts, serves, idles, stands still and dies.

    python3 tests/gpu/serve.py --site DIRECTORY --model DIRECTORY --out DIRECTORY

DIRECTORY of --model holds target and draft. Reports (JSON and text),
recordings and the server's log go to --out; the verdicts are printed, and it exits with 1 if one is not the expected one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
PORT = 8400
PROMPT = "def __init__(self, name):\n    self.name = name\n"
SPECULATION = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1\
 --speculative-num-draft-tokens 4"
OPTIONS = "--attention-backend triton --sampling-backend pytorch --grammar-backend none --disable-cuda-graph\
 --disable-custom-all-reduce --mem-fraction-static 0.3 --enable-metrics --skip-server-warmup"
LOOKS_APART_S = 2.5
BETWEEN_LOOKS_S = 1.7
"""After the start of an attach with looks that far apart: the first one is over, which nothing tells."""
EXPECTED: dict[str, tuple[set[str | None], int | None]] = {
    "starting": ({None, "GPD314", "GPD315", "GPD316"}, None),
    "serving": ({None}, None),
    "serving_confirmed": ({None}, None),
    "idle": ({"GPD318"}, None),
    "stopped": ({"GPD305"}, 1),
    "serving_again": ({None}, None),
    "killed": ({"GPD304"}, 1),
}
"""Codes that are right (None: no finding), and the rank that must be the culprit."""


def ask(path: str, body: dict[str, Any] | None = None, timeout_s: float = 20) -> int | None:
    """The status of the answer, None without one."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310  the address is ours
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def generated() -> float | None:
    """Tokens that the server has decoded so far, by its own count."""
    sys.path.insert(0, str(ROOT))
    from gpudiag.collect.metrics import read_metrics
    from gpudiag.model.reading import Ok

    reading = read_metrics(f"http://127.0.0.1:{PORT}")
    if not isinstance(reading, Ok):
        return None
    return reading.value.generated_live if reading.value.generated_live is not None else reading.value.generated_tokens


def state(pid: int) -> str:
    """The letter in /proc/PID/stat: T for stopped, Z for a zombie; X where there is no process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"


class Load:
    """Clients that ask for completions one after the other, until told to stop."""

    def __init__(self, model: Path, clients: int, *, tokens: int = 200, timeout_s: float = 60) -> None:
        body = {"model": str(model / "target"), "prompt": PROMPT, "max_tokens": tokens, "temperature": 0}
        self._over = threading.Event()
        self.answers = 0
        self._threads = [threading.Thread(target=self._run, args=(body, timeout_s), daemon=True) for _ in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def drain(self, limit_s: float) -> None:
        """Wait until every request that is out was answered or given up."""
        deadline = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, body: dict[str, Any], timeout_s: float) -> None:
        while not self._over.is_set():
            if ask("/v1/completions", body, timeout_s) == 200:
                self.answers += 1
            else:
                self._over.wait(0.2)


class Session:
    """One server, from its start to its end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out: Path = options.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.rows: list[dict[str, Any]] = []
        self.server: subprocess.Popen[bytes] | None = None
        self.log = self.out / "server.log"

    def start(self) -> None:
        model, site = self.options.model, self.options.site
        engine = ["--model-path", str(model / "target"), "--tp", "2", "--port", str(PORT)]
        engine += self.options.engine_options.split()
        if not self.options.no_eagle:
            engine += [*SPECULATION.split(), "--speculative-draft-model-path", str(model / "draft")]
        command = [self.options.python, "-m", "sglang.launch_server", *engine]
        environ = {
            **os.environ,
            **({"PYTHONPATH": str(site)} if site is not None else {}),
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK": "1",
        }
        with self.log.open("wb") as log:
            self.server = subprocess.Popen(command, env=environ, stdout=log, stderr=log, cwd="/", start_new_session=True)

    def pids(self) -> dict[int, str]:
        """Processes of the server, by pid, with their titles."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if self.server is not None and os.getsid(int(entry.name)) == self.server.pid:
                    found[int(entry.name)] = (
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    )
        return found

    def rank(self, number: int) -> int:
        return next(pid for pid, title in self.pids().items() if f"scheduler_TP{number}" in title)

    def command(self, name: str, *options: str) -> list[str]:
        assert self.server is not None
        base = [sys.executable, "-m", "gpudiag", "attach", str(self.server.pid), "--once", "--fail-on", "never"]
        return [*base, "--record", str(self.out / f"{name}.gpudiag"), "--json", *options]

    def attach(self, name: str, *options: str) -> None:
        started = time.monotonic()
        done = subprocess.run(self.command(name, *options), capture_output=True, text=True, cwd=ROOT, timeout=60)
        self.keep(name, done.returncode, done.stdout, done.stderr, time.monotonic() - started)

    def keep(self, name: str, status: int, stdout: str, stderr: str, took_s: float) -> None:
        (self.out / f"{name}.json").write_text(stdout)
        if stderr.strip():
            (self.out / f"{name}.err").write_text(stderr)
        row: dict[str, Any] = {"look": name, "exit": status, "wall_s": round(took_s, 2)}
        try:
            report = json.loads(stdout)
            verdict = report["verdict"]
            culprits = [c["rank"] for c in verdict["culprits"]]
            codes, rank = EXPECTED[name]
            row |= {
                "state": report["target"]["state"],
                "status": verdict["status"],
                "code": verdict["code"],
                "confidence": verdict["confidence"],
                "culprits": culprits,
                "stopped_s": report["cost"]["stopped_s"],
                "title": verdict["title"],
                "right": verdict["code"] in codes
                and (rank is None or rank in culprits)
                and (not name.startswith("serving") or verdict["status"] == "healthy"),
            }
        except (ValueError, KeyError, TypeError) as error:
            row |= {"right": False, "title": f"no report: {error!r} {stderr[-300:]}"}
        self.rows.append(row)
        (self.out / "table.json").write_text(json.dumps(self.rows, indent=1))
        print(json.dumps(row), flush=True)

    def wait_until_ready(self, limit_s: float) -> bool:
        assert self.server is not None
        started, looked = time.monotonic(), False
        while time.monotonic() - started < limit_s and self.server.poll() is None:
            if ask("/health", timeout_s=3) == 200:
                print(f"ready after {time.monotonic() - started:.0f} s", flush=True)
                return True
            if not looked and time.monotonic() - started > self.options.look_after:
                looked = True
                self.attach("starting")
            time.sleep(1)
        print(f"not ready, exit status {self.server.poll()}\n{self.log.read_text(errors='replace')[-4000:]}", flush=True)
        return False

    def looks(self) -> None:
        model: Path = self.options.model
        with Load(model, 1, timeout_s=90) as first:
            self._until(lambda: first.answers > 0, 100)
        with Load(model, 4) as load:
            self._until(lambda: load.answers >= 4, 60)
            self.attach("serving")
            self.attach("serving_confirmed", "--confirm")
        load.drain(60)
        self.attach("idle")
        victim = self.rank(1)
        with Load(model, 1, timeout_s=25):
            self._until_tokens_come()
            os.kill(victim, signal.SIGSTOP)
            try:
                self._until(lambda: state(victim) == "T", 5)
                self.attach("stopped")
            finally:
                os.kill(victim, signal.SIGCONT)
            with Load(model, 2) as load:
                self._until(lambda: load.answers >= 2, 30)
                self.attach("serving_again")
        self.kill(victim)

    def kill(self, victim: int) -> None:
        """The server goes down seconds after a rank is killed, so attach runs already when that happens."""
        with Load(self.options.model, 2, timeout_s=10):
            self._until_tokens_come()
            started = time.monotonic()
            looking = subprocess.Popen(
                self.command("killed", "--interval", str(LOOKS_APART_S)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            time.sleep(BETWEEN_LOOKS_S)
            os.kill(victim, signal.SIGKILL)
            stdout, stderr = looking.communicate(timeout=60)
            self.keep("killed", looking.returncode, stdout, stderr, time.monotonic() - started)
        assert self.server is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.server.wait(20)
        done = subprocess.run(
            [sys.executable, "-m", "gpudiag", "explain", str(self.log)], capture_output=True, text=True, cwd=ROOT, timeout=60
        )
        (self.out / "explain.txt").write_text(done.stdout + done.stderr)
        print(done.stdout[:1500], flush=True)

    def _until_tokens_come(self) -> None:
        """A request is under way, by the server's own count."""
        before = generated() or 0.0
        self._until(lambda: (generated() or 0.0) > before, 20)

    def _until(self, met: Any, limit_s: float) -> None:
        started = time.monotonic()
        while not met() and time.monotonic() - started < limit_s:
            time.sleep(0.1)

    def close(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs SGLang")
    parser.add_argument("--site", type=Path, help="directory with SGLang, if that interpreter has none")
    parser.add_argument("--engine-options", default=OPTIONS, help="how SGLang is started, beyond model and speculation")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--no-eagle", action="store_true", help="without a drafter, which SGLang 0.5.23 refuses on a CPU")
    parser.add_argument("--ready", type=float, default=240.0, help="seconds that the start may take (default 240)")
    parser.add_argument("--look-after", type=float, default=40.0, help="seconds after which the start is looked at (default 40)")
    session = Session(parser.parse_args())
    try:
        session.start()
        if session.wait_until_ready(session.options.ready):
            session.looks()
    finally:
        session.close()
    return 0 if session.rows and all(r["right"] for r in session.rows) and len(session.rows) == len(EXPECTED) else 1


if __name__ == "__main__":
    sys.exit(main())
