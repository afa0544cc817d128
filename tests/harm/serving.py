"""Whether watching a serving vLLM does it any harm: failed requests, tokens a second, threads seen stopped, growth of gpudiag.

    python -m tests.harm.serving --vllm VENV --model DIR [--rounds 4] [--leg 30] [--minutes 10] [--attaches 200]
    python -m tests.harm.serving --pid PID --url http://127.0.0.1:8000 --name MODEL ...

Clients ask for completions one after another, with a pause between them (--rest). Legs take turns: without gpudiag; beside a
stand-in, which computes for 20 ms once a second and touches no server; watched once a second by the collector of the terminal
interface. What the stand-in costs any process would. Then one long watch, and one attach after another beside it, while the state
of every thread of the server is read over and over. Prints one JSON object (and each part to stderr as it ends); exits 1 if a
request failed, a thread was seen stopped or traced, or the watch held more descriptors or memory at its end than after its first
minute.

VENV holds vLLM (0.32 for the CPU was used); the server is started on the CPU, with a rank on every core but one, at most two, and
ended afterwards. Ranks on all cores would leave other processes a few percent of the machine, gpudiag and the clients among them:
vLLM's ranks wait by turning in a loop.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

from gpudiag.model.process import STOPPED
from gpudiag.tui.orders import LENGTH_BYTES

START_LIMIT_S = 400.0
SETTLED_S = 60.0
"""gpudiag's own size is compared from here on: caches fill in the first minute."""
MORE_MIB = 8.0
MORE_FDS = 2
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t for two-sided 95 %, by degrees of freedom."""
SAMPLE_EVERY_S = 0.003
KINDS = ("free", "stand-in", "watched")
STAND_IN = """
import time
while True:
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    time.sleep(1)
"""
MEASURE_EVERY_S = 3.0


class Load:
    """Clients that ask for completions, one after another, until told to stop."""

    def __init__(self, url: str, name: str, clients: int, rest_s: float) -> None:
        self.url, self.name, self.rest_s = url, name, rest_s
        self.tokens = self.answered = 0
        self.asked_s = 0.0
        """Seconds that the answered requests took together."""
        self.failed: list[str] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask_on, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask_on(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            try:
                count = complete(self.url, self.name)
            except (OSError, ValueError, KeyError) as error:
                with self._lock:
                    self.failed.append(repr(error))
                self._over.wait(1.0)
                continue
            with self._lock:
                self.asked_s += time.monotonic() - began
                self.tokens += count
                self.answered += 1
            self._over.wait(self.rest_s)


def complete(url: str, name: str, tokens: int = 32) -> int:
    """One completion; the number of tokens in it."""
    body = {"model": name, "prompt": "def hello", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(  # noqa: S310  the address is the user's own server
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        return int(json.load(answer)["usage"]["completion_tokens"])


class StopSampler:
    """Reads the state of every thread of some processes, over and over, and counts those stopped or traced."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.looks = self.threads = 0
        self.stopped: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        stats: list[str] = []
        renewed = 0.0
        while not self._over.wait(SAMPLE_EVERY_S):
            if time.monotonic() - renewed > 1.0:
                stats, renewed = list(_stats(self._root)), time.monotonic()
                self._count_tracers()
            for path in stats:
                with contextlib.suppress(OSError):
                    state = Path(path).read_bytes().rpartition(b") ")[2][:1].decode()
                    if state in STOPPED:
                        self.stopped[f"{path} {state}"] = self.stopped.get(f"{path} {state}", 0) + 1
            self.looks += 1
            self.threads = max(self.threads, len(stats))

    def _count_tracers(self) -> None:
        for pid in family(self._root):
            with contextlib.suppress(OSError):
                line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("TracerPid:"))
                if line.split()[1] != "0":
                    self.stopped[f"{pid} traced"] = self.stopped.get(f"{pid} traced", 0) + 1


def family(root: int) -> list[int]:
    try:
        process = psutil.Process(root)
        return [root, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _stats(root: int) -> Iterator[str]:
    for pid in family(root):
        with contextlib.suppress(OSError):
            yield from (f"/proc/{pid}/task/{tid}/stat" for tid in os.listdir(f"/proc/{pid}/task"))


class Size(NamedTuple):
    """Seconds since the start, descriptors of all, and MiB by module: of the collector and the children that it keeps."""

    at_s: float
    fds: int
    mib: dict[str, float]


class Watcher:
    """The collector of the terminal interface, looking once a second; its frames are read and thrown away."""

    def __init__(self, root: int) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "gpudiag.tui.collector", str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps({"pid": root, "interval_s": 1.0}).encode() + b"\n")
        self.child.stdin.flush()
        self.frames = 0
        self.sizes: list[Size] = []
        self._began = time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        while len(head := self.child.stdout.read(LENGTH_BYTES)) == LENGTH_BYTES:
            self.child.stdout.read(int.from_bytes(head, "big"))
            self.frames += 1

    def measure(self) -> None:
        with contextlib.suppress(psutil.Error):
            ours = [psutil.Process(self.child.pid), *psutil.Process(self.child.pid).children(recursive=True)]
            fds = 0
            mib: dict[str, float] = {}
            for process in ours:
                words = process.cmdline()
                # py-spy comes and goes with each look, and so does a fork before it becomes one.
                module = next((word for word in words if word.startswith("gpudiag.")), None)
                if module is not None and (process.pid == self.child.pid or module != "gpudiag.tui.collector"):
                    fds += process.num_fds()
                    mib[module] = mib.get(module, 0.0) + process.memory_info().rss / 2**20
            self.sizes.append(Size(time.monotonic() - self._began, fds, mib))

    def close(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        # It ends after the look that is under way, which takes a while where everything is slow.
        self.child.wait(120)


def leg(load: Load, root: int, seconds: float, kind: str) -> dict[str, Any]:
    """Tokens a second of one request, over those that one leg answered."""
    watcher = Watcher(root) if kind == "watched" else None
    beside = subprocess.Popen([sys.executable, "-c", STAND_IN]) if kind == "stand-in" else None
    tokens, asked_s = load.tokens, load.asked_s
    time.sleep(seconds)
    took_s = load.asked_s - asked_s
    rate = (load.tokens - tokens) / took_s if took_s else 0.0
    found: dict[str, Any] = {"kind": kind, "tokens_per_s": round(rate, 2)}
    if watcher:
        found["looks"] = watcher.frames
        watcher.close()
    if beside:
        beside.kill()
        beside.wait()
    return told(found)


def watch(root: int, seconds: float, count: int) -> dict[str, Any]:
    """A watch of so many seconds, or until the attaches beside it are over if that is later; how gpudiag's size changed."""
    watcher, began, beside = Watcher(root), time.monotonic(), Attaches(root, count)
    while beside.running or time.monotonic() - began < seconds:
        time.sleep(MEASURE_EVERY_S)
        watcher.measure()
    took_s = time.monotonic() - began
    watcher.close()
    size = growth(watcher.sizes, min(SETTLED_S, took_s / 3))
    return told({"seconds": round(took_s), "looks": watcher.frames, "growth": size, "attaches": beside.found})


def told(found: dict[str, Any]) -> dict[str, Any]:
    """The same, said on stderr, so that a run cut short leaves its figures."""
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def growth(sizes: list[Size], settled_s: float) -> dict[str, Any] | None:
    """Medians of the last fifth against those just after the start, in descriptors and MiB."""
    settled = [s for s in sizes if s.at_s >= settled_s]
    part = max(1, len(settled) // 5)
    if len(settled) < 2:
        return None
    first, last = settled[:part], settled[-part:]
    more = {name: _median(last, name) - _median(first, name) for name in sizes[-1].mib}
    return {
        "fds": statistics.median(s.fds for s in last) - statistics.median(s.fds for s in first),
        "mib": round(sum(more.values()), 1),
        "mib_of": {name: round(mib, 1) for name, mib in more.items()},
        "at_end_mib": round(sum(sizes[-1].mib.values()), 1),
    }


def _median(sizes: list[Size], name: str) -> float:
    return statistics.median(s.mib.get(name, 0.0) for s in sizes)


def change(legs: list[dict[str, Any]], kind: str) -> dict[str, Any] | None:
    """By how many percent a leg of this kind is faster than the free one of its round: mean, and its 95 % interval."""
    free, beside = ([x["tokens_per_s"] for x in legs if x["kind"] == k] for k in ("free", kind))
    shares = [100 * (there / alone - 1) for alone, there in zip(free, beside, strict=True) if alone]
    if len(shares) - 1 not in T_975:
        return None
    mean, half = statistics.mean(shares), T_975[len(shares) - 1] * statistics.stdev(shares) / math.sqrt(len(shares))
    return {"mean_percent": round(mean, 2), "interval_95": [round(mean - half, 2), round(mean + half, 2)], "rounds": len(shares)}


class Attaches:
    """One attach after another, until there were so many."""

    def __init__(self, root: int, count: int) -> None:
        self._root, self._count = root, count
        self._times: list[float] = []
        self._said: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def found(self) -> dict[str, Any]:
        said = {words: self._said.count(words) for words in sorted(set(self._said))}
        median_s = round(statistics.median(self._times), 2) if self._times else None
        return {"count": len(self._times), "median_s": median_s, "said": said}

    def _run(self) -> None:
        command = [sys.executable, "-m", "gpudiag", "attach", str(self._root), "--json", "--fail-on", "never"]
        for _ in range(self._count):
            began = time.monotonic()
            done = subprocess.run(command, stdout=subprocess.PIPE)
            self._times.append(time.monotonic() - began)
            verdict = json.loads(done.stdout)["verdict"] if done.stdout else {"status": f"exit {done.returncode}"}
            self._said.append(str(verdict.get("code") or verdict["status"]))


@contextlib.contextmanager
def served(vllm: Path, model: Path, port: int) -> Iterator[tuple[int, str]]:
    """VLLM on the CPU, one or two ranks; its pid and address once it answers. Everything that it started is ended."""
    ranks = max(1, min(2, (os.cpu_count() or 1) - 1))
    variables = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "|".join(str(rank) for rank in range(ranks)),
    }
    words = ["serve", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    words += ["--tensor-parallel-size", str(ranks), "--max-model-len", "512", "--max-num-seqs", "8"]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            [str(vllm / "bin" / "vllm"), *words], env=os.environ | variables, stdout=log, stderr=log, start_new_session=True
        )
        try:
            deadline = time.monotonic() + START_LIMIT_S
            while not _answers(url):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    sys.exit(f"vLLM did not start:\n{log.read()[-2000:].decode(errors='replace')}")
                time.sleep(1.0)
            yield server.pid, url
        finally:
            members = family(server.pid)
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if pid == server.pid else 0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(20)
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            server.wait()


def _answers(url: str) -> bool:
    try:
        return complete(url, "tiny", 1) == 1
    except (OSError, ValueError, KeyError):
        return False


def measure(root: int, url: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    with Load(url, name, options.clients, options.rest) as load:
        load_before = os.getloadavg()[0]
        complete(url, name)
        legs = [leg(load, root, options.leg, kind) for kind in KINDS * options.rounds]
        # Not during the legs: reading so often takes time from the server, and more of it where gpudiag takes some as well.
        with StopSampler(root) as sampler:
            began = time.monotonic()
            watched = watch(root, options.minutes * 60, options.attaches)
            took_s = time.monotonic() - began
    return {
        "leg_s": options.leg,
        "legs": legs,
        "stand_in_against_free": change(legs, "stand-in"),
        "watched_against_free": change(legs, "watched"),
        "watch": watched,
        "requests": load.answered,
        "failed": load.failed,
        "thread_states": {
            "looks_per_s": round(sampler.looks / took_s, 1),
            "looks": sampler.looks,
            "threads": sampler.threads,
            "stopped": sampler.stopped,
        },
        "load_average": round(load_before, 1),
    }


def harmless(found: dict[str, Any]) -> bool:
    grown = found["watch"]["growth"]
    small = grown is not None and grown["fds"] <= MORE_FDS and grown["mib"] <= MORE_MIB
    return not found["failed"] and not found["thread_states"]["stopped"] and small


def main() -> int:
    # A run of half an hour that is ended takes its server with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", type=Path, help="environment with vLLM")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--port", type=int, default=8177)
    parser.add_argument("--pid", type=int, help="a server that runs already")
    parser.add_argument("--url")
    parser.add_argument("--name", default="tiny")
    parser.add_argument("--minutes", type=float, default=10.0, help="the long watch")
    parser.add_argument("--leg", type=float, default=30.0, help="seconds of each leg (default 30)")
    parser.add_argument("--rounds", type=int, default=4, choices=range(1, 11), help="of three legs (default 4)")
    parser.add_argument("--rest", type=float, default=0.5, help="seconds between two requests of a client (default 0.5)")
    parser.add_argument("--attaches", type=int, default=200)
    parser.add_argument("--clients", type=int, default=2)
    options = parser.parse_args()
    if options.pid:
        found = measure(options.pid, options.url, options.name, options)
    elif options.vllm and options.model:
        with served(options.vllm, options.model, options.port) as (pid, url):
            found = measure(pid, url, options.name, options)
    else:
        parser.error("--vllm and --model, or --pid and --url")
    print(json.dumps(found, indent=1))
    return 0 if harmless(found) else 1


if __name__ == "__main__":
    sys.exit(main())
