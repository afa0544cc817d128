"""A real SGLang with EAGLE-3 on two GPUs, from `gpudiag launch` to its end: started, served, stopped, continued, killed.

    python3 -m tests.gpu.launch --site DIRECTORY --model DIRECTORY --out DIRECTORY

What its supervisor says by itself is what counts here; nobody asks. The run directory, samples of progress.json and casts of
the screens go to --out; it exits with 1 if a step did not go as it must.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.gpu.serve import OPTIONS, PORT, PROMPT, ROOT, Load, generated, state
from tests.gpu.terminal import Terminal

SOON_S: Final = 10.0
SCREENS: Final = ((120, 40), (80, 24))
T_975: Final = {5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201, 19: 2.093, 39: 2.023}
"""Student's t for two-sided 95 %, by degrees of freedom."""


def interval(shares: list[float]) -> str:
    """Mean and 95 % interval of what the second of each pair is above the first, in percent."""
    mean = statistics.mean(shares)
    half = T_975[len(shares) - 1] * statistics.stdev(shares) / math.sqrt(len(shares))
    return f"{mean:+.2f} % [{mean - half:+.2f}, {mean + half:+.2f}]"


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in task.read_text().split()]
    return found


def tree(pid: int, *, without: int = 0) -> list[int]:
    """The process and its descendants, but for those below `without`."""
    return [pid, *(p for child in children_of(pid) if child != without for p in tree(child, without=without))]


def alive(pid: int) -> bool:
    """Whether it is there, and not just unreaped by an init that does not reap."""
    return state(pid) not in "ZX"


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time of these processes and of the children that they waited for, but for the server's."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(n) for n in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


class Run:
    """One launch, and everything that is done to its server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out: Path = options.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        self.rows: list[dict[str, Any]] = []
        self.launch: subprocess.Popen[bytes] | None = None
        self.directory: Path | None = None
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    # What happened, and when.

    def at(self) -> float:
        return round(time.monotonic() - self.began, 2)

    def note(self, step: str, *, right: bool = True, **facts: Any) -> None:
        row = {"at_s": self.at(), "step": step, "right": right, **facts}
        self.rows.append(row)
        (self.out / "table.json").write_text(json.dumps(self.rows, indent=1))
        print(json.dumps(row), flush=True)

    def wait(self, met: Callable[[], Any], limit_s: float) -> float | None:
        """Seconds until it was so; None if it never was."""
        began = time.monotonic()
        while time.monotonic() - began < limit_s:
            if met():
                return round(time.monotonic() - began, 2)
            time.sleep(0.05)
        return None

    def read(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError, TypeError):
            found: dict[str, Any] = json.loads(((self.directory or Path()) / name).read_text())
            return found
        return {}

    @property
    def progress(self) -> dict[str, Any]:
        return self.read("progress.json")

    def _sample(self) -> None:
        """Every progress.json that differs from the one before, with the time."""
        before = None
        with (self.out / "progress.jsonl").open("w") as samples:
            while not self._over.wait(0.2):
                now = self.progress
                if now and now != before:
                    before = now
                    samples.write(json.dumps({"at_s": self.at(), **now}) + "\n")
                    samples.flush()

    # The start.

    def start(self) -> bool:
        model, site = self.options.model, self.options.site
        python = self.out / "python"
        inside = f"PYTHONPATH={site} " if site is not None else ""
        python.write_text(f'#!/bin/sh\n{inside}exec {self.options.python} "$@"\n')
        python.chmod(0o755)
        command = [sys.executable, "-m", "gpudiag", "launch", "sglang", "--tp", "2", "--port", str(PORT), "--python", str(python)]
        command += ["--model", str(model / "target"), "--no-tui", "--force", "--record", str(self.out / "runs")]
        command += ["--no-draft"] if self.options.no_draft else ["--draft", str(model / "draft")]
        command += ["--arm-kernel-dump"] if self.options.arm_kernel_dump else []
        command += ["--", *self.options.engine_options.replace("--enable-metrics", "").split()]
        environ = {**os.environ, "HF_HUB_OFFLINE": "1", "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK": "1"}
        output = (self.out / "launch.out").open("wb")
        self.launch = subprocess.Popen(command, env=environ, stdout=output, stderr=subprocess.PIPE, cwd=ROOT)
        threading.Thread(target=self._say, daemon=True).start()
        took = self.wait(self._started, 200)
        self.note("server started", right=took is not None, after_s=took)
        self._sampler.start()
        return took is not None

    def _say(self) -> None:
        """What a person would see, with the time before each line."""
        assert self.launch is not None
        assert self.launch.stderr is not None
        with (self.out / "launch.err").open("w") as kept:
            for line in self.launch.stderr:
                text = f"{self.at():7.2f} {line.decode(errors='replace').rstrip()}"
                kept.write(text + "\n")
                kept.flush()
                print("  | " + text[:180], flush=True)

    def _started(self) -> bool:
        assert self.launch is not None
        if self.launch.poll() is not None:
            return False
        for manifest in (self.out / "runs").glob("*/manifest.json"):
            self.directory = manifest.parent
        return bool(self.read("manifest.json").get("server_pid"))

    @property
    def root(self) -> int:
        return int(self.read("manifest.json")["server_pid"])

    @property
    def supervisor(self) -> int:
        return int(self.read("manifest.json")["supervisor_pid"])

    def rank(self, number: int) -> int:
        for pid in tree(self.root):
            with contextlib.suppress(OSError):
                if f"scheduler_TP{number}" in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
        raise LookupError(f"no scheduler_TP{number}")

    def ready(self) -> bool:
        open_run = "import sys; from pathlib import Path; from gpudiag.tui.entry import open_run; open_run(Path(sys.argv[1]))"
        screens = [
            self.screen("start", [sys.executable, "-c", open_run, str(self.directory)], *SCREENS[0]),
            self.screen("start", [sys.executable, "-m", "gpudiag", "attach", str(self.root)], *SCREENS[1]),
        ]
        assert self.launch is not None
        over = self.launch
        self.wait(lambda: self.progress.get("state") == "serving" or over.poll() is not None, self.options.ready)
        # They look once a second: the first look at the server that serves is the one worth keeping.
        written = [screen.written for screen in screens]
        self.wait(lambda: all(screen.written > before for screen, before in zip(screens, written, strict=True)), SOON_S)
        self.leave("start", screens)
        progress = self.progress
        phases = {p["phase"]: round((p.get("ended_at") or progress["at"]) - p["began_at"], 1) for p in progress.get("phases", ())}
        self.note("ready", right=progress.get("state") == "serving", sentence=progress.get("sentence"), phases=phases)
        return progress.get("state") == "serving"

    # Screens.

    def screen(self, name: str, command: list[str], columns: int, rows: int) -> Terminal:
        return Terminal(command, self.out / f"{name}-{columns}x{rows}.cast", columns=columns, rows=rows)

    def leave(self, name: str, screens: list[Terminal]) -> None:
        for screen in screens:
            status, took_s = screen.leave()
            facts = {"size": screen.size, "bytes": screen.written, "exit": status, "left_in_s": round(took_s, 2)}
            self.note(f"screen: {name}", right=status == 0 and screen.written > 5000, **facts)

    def look_at_screens(self, name: str, stay_s: float) -> None:
        command = [sys.executable, "-m", "gpudiag", "attach", str(self.root)]
        screens = [self.screen(name, command, *size) for size in SCREENS]
        time.sleep(stay_s)
        self.leave(name, screens)

    # While it serves.

    def serve(self) -> None:
        with Load(self.options.model, 1, timeout_s=90) as first:
            self.note("first answer", right=self.wait(lambda: first.answers > 0, 100) is not None)
        if not self.options.no_draft:
            self.attempt(self.measure)
        with Load(self.options.model, 4, timeout_s=60) as load:
            self.wait(lambda: load.answers >= 4, 60)
            self.look_at_screens("serving", 7)
            self.attempt(self.attach)
            self.share_of_a_core()
            if self.options.pairs:
                self.attempt(self.cost_of_supervision)

    def attempt(self, measurement: Callable[[], None]) -> None:
        """A figure that cannot be had is one row that is wrong, and the faults come all the same."""
        try:
            measurement()
        except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
            self.note(measurement.__name__, right=False, error=repr(error)[:300])

    def measure(self) -> None:
        prompts = self.out / "prompts.txt"
        prompts.write_text(
            "\n".join(PROMPT.replace("\n", " ").replace("name", n) for n in ("name", "size", "key", "path")) + "\n"
        )
        command = [sys.executable, "-m", "gpudiag", "drafter", "measure", f"http://127.0.0.1:{PORT}", "--raw", "--json"]
        command += ["--prompts", str(prompts), "--max-tokens", "96", "--fail-on", "never"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=90)
        (self.out / "measure.json").write_text(done.stdout)
        (self.out / "measure.err").write_text(done.stderr)
        with contextlib.suppress(ValueError):
            document = json.loads(done.stdout)
            self.note("acceptance", exit=done.returncode, acceptance=document.get("measurement", {}).get("acceptance"))

    def attach(self) -> None:
        command = [sys.executable, "-m", "gpudiag", "attach", str(self.root), "--once", "--json", "--fail-on", "never"]
        for number in range(3):
            began = time.monotonic()
            record = ["--record", str(self.out / "attach.gpudiag")] if number == 2 else []
            done = subprocess.run([*command, *record], capture_output=True, text=True, cwd=ROOT, timeout=60)
            report = json.loads(done.stdout)
            facts = {"processes": len(tree(self.root)), "looked_s": report["cost"]["wall_s"], "title": report["verdict"]["title"]}
            self.note("attach", right=report["cost"]["wall_s"] <= 2.0, wall_s=round(time.monotonic() - began, 2), **facts)

    def share_of_a_core(self) -> None:
        pids = tree(self.supervisor, without=self.root)
        before, began = cpu_s(pids), time.monotonic()
        time.sleep(self.options.share_s)
        share = 100 * (cpu_s(pids) - before) / (time.monotonic() - began)
        self.note("supervision", processes=len(pids), percent_of_a_core=round(share, 2), over_s=self.options.share_s)

    def cost_of_supervision(self) -> None:
        """Tokens a second with the supervisor stopped and with it running, in turn."""
        ours = tree(self.supervisor, without=self.root)
        rates: dict[bool, list[float]] = {False: [], True: []}
        try:
            for pair in range(self.options.pairs):
                for watched in (True, False) if pair % 2 else (False, True):
                    for pid in ours:
                        os.kill(pid, signal.SIGCONT if watched else signal.SIGSTOP)
                    self._all_are(ours, stopped=not watched)
                    rates[watched].append(self._rate(self.options.window_s))
        finally:
            for pid in ours:
                os.kill(pid, signal.SIGCONT)
        shares = [100 * (on / off - 1) for off, on in zip(rates[False], rates[True], strict=True) if off]
        (self.out / "supervision.json").write_text(json.dumps({"off": rates[False], "on": rates[True]}, indent=1))
        tokens = round(statistics.mean(rates[False])) if rates[False] else None
        self.note("throughput, watched against not", pairs=len(shares), tokens_per_s=tokens, change=interval(shares))

    def _all_are(self, pids: Sequence[int], *, stopped: bool) -> None:
        self.wait(lambda: all((state(pid) == "T") == stopped for pid in pids), 5)

    def _rate(self, window_s: float) -> float:
        first, began = generated() or 0.0, time.monotonic()
        time.sleep(window_s)
        last = generated() or 0.0
        return (last - first) / (time.monotonic() - began)

    def _tokens_come(self) -> None:
        """Wait until a request is under way, by the server's own count."""
        before = generated() or 0.0
        self.wait(lambda: (generated() or 0.0) > before, 20)

    # Faults.

    def stop_a_worker(self) -> int:
        victim = self.rank(1)
        with Load(self.options.model, 1, timeout_s=60):
            self._tokens_come()
            os.kill(victim, signal.SIGSTOP)
            try:
                took = self.wait(lambda: self.progress.get("code"), 30)
                progress = self.progress
                report = self.report(progress)
                right = took is not None and took <= SOON_S and progress["code"] == "GPD305" and 1 in report["ranks"]
                self.note("worker stopped", right=right, after_s=took, sentence=progress.get("sentence"), **report)
                self.look_at_screens("stopped", 8)
            finally:
                os.kill(victim, signal.SIGCONT)
            with Load(self.options.model, 2) as load:
                answered = self.wait(lambda: load.answers >= 2, 30)
                again = self.wait(lambda: self.progress.get("state") == "serving" and not self.progress.get("code"), 30)
        self.note("worker continued", right=answered is not None and again is not None, answered_s=answered, serving_s=again)
        return victim

    def kill_a_worker(self, victim: int) -> None:
        assert self.launch is not None
        ours = [pid for pid in tree(self.supervisor) if pid != os.getpid()]
        with Load(self.options.model, 2, timeout_s=10):
            self._tokens_come()
            os.kill(victim, signal.SIGKILL)
            began = time.monotonic()
            told = self.wait(lambda: self.progress.get("code"), 30)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.launch.wait(60)
        over = self.launch
        progress, code = self.progress, over.poll()
        left = [pid for pid in ours if alive(pid)]
        report = self.report(progress)
        self.note(
            "worker killed",
            right=code == 1 and not left and progress.get("code") in ("GPD304", "GPD210"),
            told_s=told,
            ended_s=round(time.monotonic() - began, 1),
            state=progress.get("state"),
            exit=code,
            orphans=left,
            sentence=progress.get("sentence"),
            **report,
        )

    def report(self, progress: dict[str, Any]) -> dict[str, Any]:
        report = self.read(progress.get("report") or "-")
        verdict = report.get("verdict", {})
        ranks = [c.get("rank") for c in verdict.get("culprits", ())]
        return {
            "code": verdict.get("code"),
            "confidence": verdict.get("confidence"),
            "ranks": ranks,
            "report": progress.get("report"),
        }

    def close(self) -> None:
        self._over.set()
        if self.launch is not None and self.launch.poll() is None:
            # What is left of the server ends with this; it is passed on to the supervisor.
            self.launch.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.launch.wait(30)
        with contextlib.suppress(KeyError, OSError):
            for pid in tree(self.supervisor):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self.launch is not None and self.launch.poll() is None:
            self.launch.kill()
        for big in self.out.glob("runs/*/kernels/core.*"):
            big.unlink()
        if self.directory is not None and (self.directory / "server.log").exists():
            shutil.copy(self.directory / "server.log", self.out / "server.log")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs SGLang")
    parser.add_argument("--site", type=Path, help="directory with SGLang, if that interpreter has none")
    parser.add_argument("--engine-options", default=OPTIONS, help="what stands behind -- for SGLang")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--no-draft", action="store_true", help="without a drafter, which SGLang 0.5.23 refuses on a CPU")
    parser.add_argument("--arm-kernel-dump", action="store_true")
    parser.add_argument("--ready", type=float, default=240.0, help="seconds that the start may take (default 240)")
    parser.add_argument("--share-s", type=float, default=15.0, help="seconds over which the supervisor's share is taken")
    parser.add_argument("--pairs", type=int, default=10, choices=[0, 6, 8, 10, 12], help="with and without supervisor")
    parser.add_argument("--window-s", type=float, default=2.5, help="seconds of each half of a pair (default 2.5)")
    return parser.parse_args()


def main() -> int:
    run = Run(arguments())
    try:
        if run.start() and run.ready():
            run.serve()
            run.kill_a_worker(run.stop_a_worker())
    finally:
        run.close()
    return 0 if run.rows and all(row["right"] for row in run.rows) and run.rows[-1]["step"] == "worker killed" else 1


if __name__ == "__main__":
    sys.exit(main())
