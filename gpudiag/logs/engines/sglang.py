"""SGLang's log lines (read in 0.5.17 and 0.5.23 logs; older spellings from public reports)."""

from __future__ import annotations

from typing import Final

from gpudiag.logs.engines.base import SERVING, WORKING, Sign, Step, Victim, sign, step, victim

SIGNS: Final[tuple[Sign, ...]] = (
    sign("run-start", "server_args=", r"server_args=(?:ServerArgs\(|\{)"),
    sign(
        "worker-died",
        "crashed with exit code",
        r"Subprocess (?P<name>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<code>-?\d+)",
    ),
    sign(
        "worker-died",
        "died with exit",
        r"(?P<name>[Ss]cheduler\w*|Rank \d+ scheduler).{0,80}? died with exit ?code:? (?P<code>-?\d+)",
    ),
    sign("worker-died", "is dead. Please check", r"Rank (?P<rank>\d+) scheduler is dead\. Please check"),
    sign("worker-died", "Exit code:", r"Exit code: (?P<code>-?\d+)"),
    sign("victim", "SIGQUIT received", r"(?P<what>SIGQUIT received.{0,80})"),
    sign("victim", "eceived sigquit from a child", r"(?P<what>[Rr]eceived sigquit from a child.{0,80})"),
    sign("victim", "Health check failed", r"(?P<what>Health check failed.{0,100})"),
    sign(
        "watchdog",
        "atchdog timeout",
        r"(?P<who>\w+)? ?[Ww]atchdog timeout \((?:self\.)?watchdog_timeout=(?P<limit>[\d.]+)(?:, (?:self\.)?soft=(?P<soft>\w+))?",
    ),
    sign("sigterm", "SIGTERM received", r"SIGTERM received"),
    sign("shutdown", "Gracefully exiting", r"Gracefully exiting.*?[Rr]emaining number of requests:? ?(?P<remaining>\d+)"),
    sign("shutdown", "kill_process_tree called", r"kill_process_tree called"),
    sign(
        "import-ignored",
        "Ignore import error",
        r"Ignore import error when loading (?P<module>[\w.]+): (?P<error>.{1,400})",
    ),
    sign("model-class", "has no SGLang implementation", r"(?P<architecture>\w+) has no SGLang implementation"),
    sign("model-class", "Load weight end", r"Load weight end\..*?type=(?P<model_class>\w+)"),
)

STEPS: Final[tuple[Step, ...]] = (
    step("server_args=", 10, "arguments read"),
    step("Init parallel begin", 30, "joining the process group"),
    step("Init torch distributed begin", 30, "joining the process group"),
    step("sglang is using nccl==", 32, "creating the NCCL communicator"),
    step("Init parallel ends", 40, "process group joined"),
    step("Init torch distributed ends", 40, "process group joined"),
    step("Load weight begin", 50, "loading weights"),
    step("Load weight end", 60, "weights loaded"),
    step("KV Cache is allocated", 70, "KV cache allocated"),
    step("Memory pool end", 72, "memory pool made"),
    step("Capture cuda graph begin", 80, "capturing CUDA graphs"),
    step("Capture cuda graph end", 85, "CUDA graphs captured"),
    step("Entering DeepGEMM JIT", 84, "compiling DeepGEMM kernels"),
    step("max_total_num_tokens=", 90, "scheduler ready"),
    step("Uvicorn running on", SERVING, "listening"),
    step("The server is fired up", SERVING + 5, "ready"),
    step("Prefill batch", WORKING, "serving"),
    step("Decode batch", WORKING, "serving"),
)

VICTIMS: Final[tuple[Victim, ...]] = (
    victim(
        "a peer process closed its gloo connection",
        message=r"gloo/transport/\S+\] .{0,40}(?:Connection (?:closed|reset) by peer|Broken pipe)",
    ),
    victim(
        "a peer stopped answering on gloo",
        message=r"gloo/transport/\S+\] .{0,60}[Tt]imed out|Application timeout caused pair closure",
    ),
    victim("the scheduler process ended before it was ready", exception=r"EOFError", source=r"reader\.recv\(|\.recv\("),
    victim(
        "a scheduler did not come up",
        message=(
            r"Initialization failed\. Please see the error messages above|Rank \d+ "
            r"scheduler died during initialization|Scheduler.{0,40}(?:died|failed) during init"
        ),
    ),
    victim("a child process told its parent to stop", message=r"SIGQUIT|sigquit"),
)
