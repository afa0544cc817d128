"""Faults planted in real engines, of which the log is left: vLLM 0.24 and 0.32, SGLang 0.5.17 and 0.5.23.

The first run explains the log as it was written; the others bury it in what a healthy server writes, with the complaints of
victims last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from tests.faults.case import Culprit, Fault, Staged, Variation
from tests.logs.support import buried, noise, raw

Engine = Literal["sglang", "vllm"]


def log(engine: Engine, name: str, code: str | None, planted: str, *, may_be_buried: bool = True, **culprit: Any) -> Fault:
    """An entry for tests/logs/data/ENGINE_NAME.log.gz."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        key = f"{engine}_{name}"
        path = vary.directory / "server.log"
        data = raw(key)
        if vary.number and may_be_buried:
            # Victims complain of a failure: beside a healthy log they would be one.
            data = buried(key, engine) if code else b"".join(noise(engine)) + data
        path.write_bytes(data)
        yield Staged(("explain", str(path)), Culprit(**culprit))

    return Fault(name=f"{engine}-log-{name.replace('_', '-')}", planted=planted, code=code, ground=engine, stage=stage)


FAULTS = (
    log("sglang", "scheduler_syntax", "GPD201", "a syntax error in scheduler.py", file="managers/scheduler.py", line=56),
    log("vllm", "model_syntax", "GPD201", "a comma after an import in models/llama.py", file="models/llama.py", line=61),
    log("vllm", "worker_syntax", "GPD201", "a bracket that is not closed in cpu_worker.py", file="worker/cpu_worker.py", line=13),
    log("sglang", "no_sgl_kernel", "GPD202", "sgl_kernel is not installed", says="'sgl_kernel'"),
    log("sglang", "no_torchvision", "GPD202", "torchvision is not installed", says="'torchvision'"),
    log("vllm", "missing_module", "GPD202", "cpu_worker.py imports what is not there", file="cpu_worker.py", line=13),
    log(
        "sglang", "worker_missing_module", "GPD202", "model_runner.py imports what is not there", file="model_runner.py", line=26
    ),
    log("vllm", "libnuma", "GPD203", "a library that _C needs has another name", says="libnumb.so.1"),
    log("vllm", "undefined_symbol", "GPD204", "a symbol that _C needs is in no library", path="vllm/_C.abi3.so"),
    log("vllm", "bad_name", "GPD205", "cpu_worker.py imports a name that mem_utils has not", file="cpu_worker.py", line=23),
    log("vllm", "devshm", "GPD209", "/dev/shm of 64 MiB", path="/dev/shm"),
    log("vllm", "sigkill_rank1", "GPD210", "SIGKILL to Worker_TP1", rank=1),
    log("vllm", "gpu_sigkill_rank1", "GPD210", "SIGKILL to Worker_TP1 on an H200", rank=1),
    log("sglang", "missing_path", "GPD211", "a model path that is not there", path="/models/nope"),
    log("vllm", "missing_path", "GPD211", "a model path that is not there", path="/models/nope"),
    log("sglang", "truncated", "GPD212", "model.safetensors cut short", path="/models/tiny_trunc"),
    log("vllm", "truncated", "GPD212", "model.safetensors cut short", path="/models/tiny_trunc"),
    log("sglang", "architecture", "GPD213", "config.json names a model type that does not exist", says="quokka"),
    log("vllm", "architecture", "GPD213", "config.json names a model type that does not exist", says="quokka"),
    log("vllm", "eagle3_refused", "GPD214", "EAGLE-3 with a target class without its interface", says="EAGLE-3's interface"),
    log("vllm", "d2t", "GPD215", "a drafter with d2t and a full vocabulary", says="draft_id_to_target_id"),
    log("vllm", "drafter_hidden", "GPD215", "a drafter of another hidden size", says="drafter"),
    log("vllm", "drafter_renamed", "GPD215", "a drafter with a renamed weight", says="drafter"),
    log("sglang", "port", "GPD216", "the port is taken", says="8200"),
    log("vllm", "port", "GPD216", "the port is taken", says="8100"),
    log("sglang", "sigbus_tp1", "GPD217", "SIGBUS to scheduler TP1", rank=1),
    log("sglang", "sigsegv_tp1", "GPD217", "SIGSEGV to scheduler TP1", rank=1),
    log("vllm", "sigsegv_tp1", "GPD217", "SIGSEGV to Worker_TP1", rank=1),
    log("sglang", "raise_rank1", "GPD220", "llama.py raises on rank 1", rank=1, file="models/llama.py", line=612),
    log("vllm", "raise_rank1", "GPD220", "llama.py raises on rank 1", rank=1, file="models/llama.py", line=543),
    log("vllm", "flag_value", "GPD221", "a word where a number belongs", says="gpu-memory-utilization"),
    log("vllm", "kv", "GPD222", "a context of 8000000 tokens", says="8000000"),
    log("vllm", "kvspace", "GPD222", "a KV cache of more than the free memory", says="KV cache"),
    log("sglang", "no_weights", "GPD224", "a model folder without weights", path="/models/tiny_now"),
    log("vllm", "no_weights", "GPD224", "a model folder without weights", path="/models/tiny_now"),
    log("sglang", "numa", "GPD225", "two ranks on one NUMA node, SGLANG_CPU_OMP_THREADS_BIND not set", says="NUMA"),
    log("vllm", "numa", "GPD225", "two ranks on one NUMA node, no binding given", says="NUMA"),
    log("vllm", "operator", "GPD226", "the compiled part without its operators", says="_C::init_cpu_memory_env"),
    log("sglang", "gpu_sigkill_rank1", "GPD304", "SIGKILL to scheduler TP1 on an H200", rank=1),
    log("sglang", "sigkill_tp1", "GPD304", "SIGKILL to scheduler TP1", rank=1),
    log("sglang", "unknown_flag", "GPD701", "a flag that is misspelt", says="--speculative-draft-tokenz"),
    log("vllm", "unknown_flag", "GPD701", "a flag that this version does not have", says="--speculative-draft-tokens"),
    log(
        "vllm",
        "execute_timeout",
        "GPD703",
        "SIGSTOP to Worker_TP1 under a limit of 20 s that ends the server",
        may_be_buried=False,  # what follows it would show a server that serves on
        says="execute_model",
    ),
    log("sglang", "eagle3_backend", "GPD705", "EAGLE-3 with an attention backend that cannot draft", says="torch_native"),
    log("sglang", "bad_attr", "GPD706", "models/llama.py imports a name that is not there", file="models/llama.py"),
    log("sglang", "syntax_fallback", "GPD706", "a comma after an import in models/llama.py", file="models/llama.py", line=68),
)

LOOK_ALIKES = (
    log("sglang", "healthy", None, "started, served, was told to stop", may_be_buried=False),
    log("vllm", "healthy", None, "started, served, was told to stop", may_be_buried=False),
    log("sglang", "start", None, "started and served"),
    log("vllm", "start", None, "started and served"),
    log("sglang", "soft_watchdog", None, "a soft watchdog of 8 s that fires while it is slow", may_be_buried=False),
)

UNDECIDED = (
    log("vllm", "exit_worker", None, "a worker ends itself without a word while it starts", may_be_buried=False),
    log("vllm", "sigstop_rank1", None, "SIGSTOP to Worker_TP1, and no stacks beside the log", may_be_buried=False),
    log("sglang", "sigstop_tp1", None, "SIGSTOP to scheduler TP1, and no stacks beside the log", may_be_buried=False),
)
