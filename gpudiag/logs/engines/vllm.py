"""vLLM's log lines (read in 0.24.0 and 0.32.0 logs; older spellings from public reports)."""

from __future__ import annotations

from typing import Final

from gpudiag.logs.engines.base import SERVING, WORKING, Sign, Step, Victim, sign, step, victim

SIGNS: Final[tuple[Sign, ...]] = (
    sign("run-start", "non-default args:", r"non-default args: "),
    sign(
        "worker-died",
        "died unexpectedly",
        r"Worker proc (?P<name>\S+) died unexpectedly(?: \(exit code: (?P<code>-?\d+)\))?",
    ),
    sign("worker-died", "Engine core proc", r"Engine core proc (?P<name>\S+) died unexpectedly"),
    sign("victim", "shared memory broadcast block", r"(?P<what>No available (?:shared memory broadcast )?block found.{0,60})"),
    sign("victim", "RPC call to", r"(?P<what>RPC call to \w+ timed out)"),
    sign("victim", "EngineDeadError", r"(?P<what>EngineDeadError.{0,100})"),
    sign("shutdown", "[shutdown]", r"\[shutdown\] (?P<what>.{1,100})"),
    sign("sigterm", "SIGTERM", r"(?:[Rr]eceived|got) (?:signal )?SIGTERM|[Ss]hutdown initiated"),
    sign(
        "custom-all-reduce",
        "custom_all_reduce.cuh",
        r"custom_all_reduce\.cuh:(?P<line>\d+).{0,20}?(?P<error>'[^']{1,80}'|invalid \w+)",
    ),
    sign("model-class", "Using Transformers", r"Using Transformers (?:backend|modeling backend|implementation).{0,40}"),
)

STEPS: Final[tuple[Step, ...]] = (
    step("non-default args:", 10, "arguments read"),
    step("Resolved architecture", 15, "model configuration read"),
    step("Initializing a V1 LLM engine", 20, "engine core started"),
    step("Initializing an LLM engine", 20, "engine core started"),
    step("distributed_init_method=", 30, "joining the process group"),
    step("vLLM is using nccl==", 32, "creating the NCCL communicator"),
    step("is assigned as DP rank", 40, "process group joined"),
    step("Starting to load model", 50, "loading weights"),
    step("Loading weights took", 60, "weights loaded"),
    step("Model loading took", 62, "model loaded"),
    step("Dynamo bytecode transform", 66, "compiling the model"),
    step("torch.compile takes", 68, "model compiled"),
    step("KV cache size", 70, "KV cache sized"),
    step("Graph capturing finished", 85, "CUDA graphs captured"),
    step("init engine (profile", 90, "engine ready"),
    step("Starting vLLM", 95, "starting the API server"),
    step("Application startup complete", SERVING, "ready"),
    step('completions HTTP/1.1" 200', WORKING, "serving"),
    step('/generate HTTP/1.1" 200', WORKING, "serving"),
)

VICTIMS: Final[tuple[Victim, ...]] = (
    victim(
        "the engine core or a worker failed before it was ready",
        message=r"Engine core initialization failed|Engine process failed to start",
    ),
    victim("a worker failed before it was ready", message=r"WorkerProc initialization failed|Failed core proc"),
    victim("the engine core is dead", exception=r"EngineDeadError|EngineGenerateError|MQEngineDeadError"),
    victim("an executor's worker is gone", message=r"^Executor failed|^cancelled$|Worker failed with error"),
    victim("a worker did not answer in time", exception=r"TimeoutError", message=r"RPC call to \w+ timed out"),
    victim("a worker did not answer in time", exception=r"TimeoutError", source=r"raise TimeoutError|acquire_read|dequeue"),
    victim("the subprocess that read the model failed", exception=r"CalledProcessError", message=r"models\.registry"),
    victim("model inspection failed for a reason given above", message=r"failed to be inspected"),
    victim("the parent process went away", message=r"Parent process (?:exited|died)"),
    victim("the server was told to stop", exception=r"KeyboardInterrupt|SystemExit|CancelledError|GeneratorExit"),
)
