"""Faults of real engines and real GPUs that were recorded: `gpudiag explain` on what `gpudiag attach --record` kept.

What was planted stands in tests/gpu/programs/worker.py for two H200s; on servers it was a signal to one process of a real
SGLang 0.5.23 or vLLM 0.32, with a request under way. A run shuffles the order in which processes and threads were listed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gpudiag.model.process import Process
from gpudiag.model.snapshot import Observation
from gpudiag.session.load import load
from gpudiag.session.record import save
from tests.faults.case import Culprit, Fault, Ground, Staged, Variation

RECORDINGS = Path(__file__).parents[1] / "recordings"


def shuffled(observation: Observation, rng: random.Random) -> Observation:
    """The same looks with processes, threads and sockets listed in another order: nothing may rest on it."""

    def other(process: Process) -> Process:
        return replace(process, threads=tuple(rng.sample(process.threads, len(process.threads))))

    return Observation(
        snapshots=tuple(
            replace(s, processes=tuple(rng.sample([other(p) for p in s.processes], len(s.processes))))
            for s in observation.snapshots
        )
    )


def recording(name: str, code: str | None, planted: str, path: str, ground: Ground, **culprit: Any) -> Fault:
    """An entry for tests/recordings/PATH.gpudiag."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        kept = RECORDINGS / f"{path}.gpudiag"
        if vary.number:
            as_kept = load(kept)
            kept = vary.directory / kept.name
            save(shuffled(as_kept.observation, vary.rng), kept, logs=as_kept.logs)
        yield Staged(("explain", str(kept)), Culprit(**culprit))

    return Fault(name=name, planted=planted, code=code, ground=ground, stage=stage)


def h200(name: str, code: str | None, planted: str, *, of: str = "h200x2", **culprit: Any) -> Fault:
    scenario = name.partition("-")[0]
    return recording(f"h200-{name.replace('_', '-')}", code, planted, f"gpu/{of}/{scenario}", "h200", **culprit)


BOTH = frozenset({0, 1})

FAULTS = (
    h200("missing_rank", "GPD301", "rank 1 sleeps, rank 0 is in all_reduce", rank=1),
    h200("graph_missing", "GPD301", "rank 1 sleeps, rank 0 replays a CUDA graph with an all_reduce", rank=1),
    h200("other_operation", "GPD302", "rank 1 gathers, rank 0 reduces", ranks=BOTH),
    h200("other_size", "GPD302", "both reduce, rank 1 twice as much; no flight recorder", ranks=BOTH),
    h200("other_size-armed", "GPD302", "both reduce, rank 1 twice as much; flight recorder", of="h200x2_armed", ranks=BOTH),
    h200("cross_order", "GPD303", "two communicators in opposite order", ranks=BOTH),
    h200("cross_order-armed", "GPD303", "two communicators in opposite order; flight recorder", of="h200x2_armed", ranks=BOTH),
    h200("killed", "GPD304", "rank 1 kills itself before the all_reduce", rank=1),
    h200("stopped", "GPD305", "rank 1 stops itself before the all_reduce", rank=1),
    h200("lock_cycle", "GPD306", "two threads of rank 1 hold one lock each and want the other's", rank=1),
    h200("stale_lock", "GPD307", "rank 1 waits in torch's FileBaton for a lock file of nobody", rank=1),
    h200("never_joined", "GPD308", "rank 1 sleeps before init_process_group", rank=1),
    h200("other_kernel", "GPD310", "rank 1 launches endless kernels of its own instead of the all_reduce", rank=1),
    h200(
        "stuck_kernel-dumped",
        "GPD310",
        "rank 1 launches a kernel that never ends; core dump of the GPU",
        of="h200x2_dumped",
        rank=1,
        says="wait_for_flag",
    ),
    h200(
        "other_kernel-dumped",
        "GPD310",
        "rank 1 launches endless kernels of its own; core dump of the GPU",
        of="h200x2_dumped",
        rank=1,
    ),
    h200("stuck_kernel", "GPD311", "rank 1 launches a kernel that never ends, then all_reduce like rank 0", rank=1, among=True),
    h200("send_without_recv", "GPD325", "rank 0 sends, rank 1 sleeps; no flight recorder", rank=1, among=True),
    h200("send_without_recv-armed", "GPD325", "rank 0 sends, rank 1 sleeps; recorder", of="h200x2_armed", rank=1, among=True),
    recording(
        "sglang-launched-killed",
        "GPD210",
        "SIGKILL to the scheduler TP1 of SGLang 0.5.17 under the supervisor of gpudiag launch",
        "gpu/h200x2_sglang/launched_killed",
        "sglang",
        rank=1,
    ),
    recording(
        "vllm-engine-core-stopped",
        "GPD305",
        "SIGSTOP to the engine core (pid 17865) of vLLM 0.32",
        "servers/GPD305-vllm-0.32-engine-core",
        "vllm",
        pid=17865,
    ),
    recording(
        "sglang-scheduler-stopped",
        "GPD305",
        "SIGSTOP to the scheduler TP1 (pid 16442) of SGLang 0.5.23",
        "servers/GPD305-sglang-0.5.23-scheduler",
        "sglang",
        pid=16442,
        rank=1,
    ),
)

LOOK_ALIKES = (
    h200("busy", None, "both ranks multiply and reduce"),
    h200("busy-armed", None, "both ranks multiply and reduce; flight recorder", of="h200x2_armed"),
    h200("idle", None, "both ranks wait for an event after a warm-up"),
    h200("idle-armed", None, "both ranks wait for an event after a warm-up; flight recorder", of="h200x2_armed"),
    h200("host_sleep", None, "rank 1 sleeps 0.2 s after each all_reduce"),
    h200("slow_compile", None, "rank 1 compiles an extension for minutes"),
    *(
        recording(f"sglang-eagle3-{name.replace('_', '-')}", None, planted, f"gpu/h200x2_sglang/{name}", "sglang")
        for name, planted in (
            ("idle", "nothing is asked of SGLang 0.5.17 with EAGLE-3"),
            ("serving", "SGLang 0.5.17 with EAGLE-3 answers requests"),
            ("serving_confirmed", "SGLang 0.5.17 with EAGLE-3 answers requests, three looks"),
            ("starting", "SGLang 0.5.17 with EAGLE-3 starts"),
            ("launched_compiling", "its first request waits for a compiler, under the supervisor of gpudiag launch"),
        )
    ),
    recording("sglang-idle-on-h200", None, "nothing is asked of SGLang 0.5.17", "gpu/converted/sglang_idle", "sglang"),
    recording("sglang-busy-on-h200", None, "SGLang 0.5.17 answers requests", "gpu/converted/sglang_busy", "sglang"),
    recording("vllm-idle-on-h200", None, "nothing is asked of vLLM", "gpu/converted/vllm_idle", "vllm"),
    recording("vllm-busy-on-h200", None, "vLLM between two requests", "gpu/converted/vllm_busy", "vllm"),
    recording("sglang-idle", None, "nothing is asked of SGLang", "servers/GPD318-sglang-idle", "sglang"),
    recording("sglang-idle-0.5.23", None, "nothing is asked of SGLang 0.5.23", "servers/GPD318-sglang-0.5.23-idle", "sglang"),
    recording("vllm-idle", None, "nothing is asked of vLLM", "servers/GPD318-vllm-idle", "vllm"),
    recording("vllm-idle-0.32", None, "nothing is asked of vLLM 0.32", "servers/GPD318-vllm-0.32-idle", "vllm"),
    recording(
        "sglang-cache-locked",
        None,
        "its first request waits for a cache into which another server compiles",
        "servers/quiet-sglang-cache-locked",
        "sglang",
    ),
    recording("sglang-builds", None, "its first request waits for ninja", "servers/quiet-sglang-builds", "sglang"),
    recording("sglang-busy", None, "SGLang answers requests", "servers/quiet-sglang-busy", "sglang"),
    recording("sglang-busy-for-5-s", None, "SGLang answers requests", "servers/quiet-sglang-busy2", "sglang"),
    recording("vllm-busy", None, "vLLM answers requests", "servers/quiet-vllm-busy", "vllm"),
    recording("vllm-busy-for-5-s", None, "vLLM answers requests", "servers/quiet-vllm-busy2", "vllm"),
    recording("vllm-starting", None, "vLLM starts", "servers/quiet-vllm-starting", "vllm"),
)
