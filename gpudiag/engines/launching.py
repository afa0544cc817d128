"""How each engine's server is started: what its options are called, and the nearest thing to the other engine's.

Names as in SGLang 0.5.5 to 0.5.23 and vLLM 0.10 to 0.33; the first one that the installed version has is taken.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from gpudiag.model.facts import ServedBy


class Dialect(Struct, frozen=True, kw_only=True):
    """One engine's words. `module` is run as `python -m`; each tuple has the spellings of one option."""

    engine: ServedBy
    module: tuple[str, ...]
    model: tuple[str, ...]
    """Empty: the model is the first argument."""
    host: tuple[str, ...]
    port: tuple[str, ...]
    tensor_parallel: tuple[str, ...]
    pipeline_parallel: tuple[str, ...]
    data_parallel: tuple[str, ...]
    nodes: tuple[str, ...]
    max_running: tuple[str, ...]
    speculation: tuple[str, ...]
    """Any of these on a command line: whoever wrote it decides about speculation."""
    default_port: int
    counterparts: dict[str, str]
    """Options of the other engine, and what does the same here."""


SGLANG: Final = Dialect(
    engine="sglang",
    module=("sglang.launch_server",),
    model=("--model-path", "--model"),
    host=("--host",),
    port=("--port",),
    tensor_parallel=("--tp-size", "--tensor-parallel-size", "--tp"),
    pipeline_parallel=("--pp-size", "--pipeline-parallel-size", "--pp"),
    data_parallel=("--dp-size", "--data-parallel-size", "--dp"),
    nodes=("--nnodes",),
    max_running=("--max-running-requests",),
    speculation=("--speculative-algorithm", "--speculative-draft-model-path", "--speculative-draft-model"),
    default_port=30000,
    counterparts={
        "--gpu-memory-utilization": "--mem-fraction-static",
        "--max-model-len": "--context-length",
        "--max-num-seqs": "--max-running-requests",
        "--max-num-batched-tokens": "--chunked-prefill-size",
        "--enforce-eager": "--disable-cuda-graph",
        "--no-enable-prefix-caching": "--disable-radix-cache",
        "--speculative-config": "--speculative-algorithm",
        "--num-speculative-tokens": "--speculative-num-steps",
        "--tokenizer": "--tokenizer-path",
        "--seed": "--random-seed",
        "--distributed-executor-backend": "--use-ray",
    },
)

VLLM: Final = Dialect(
    engine="vllm",
    module=("vllm.entrypoints.cli.main", "serve"),
    model=(),
    host=("--host",),
    port=("--port",),
    tensor_parallel=("--tensor-parallel-size", "-tp"),
    pipeline_parallel=("--pipeline-parallel-size", "-pp"),
    data_parallel=("--data-parallel-size", "-dp"),
    nodes=("--nnodes", "-n"),
    max_running=("--max-num-seqs",),
    speculation=("--speculative-config", "-sc"),
    default_port=8000,
    counterparts={
        "--tp": "--tensor-parallel-size",
        "--tp-size": "--tensor-parallel-size",
        "--pp": "--pipeline-parallel-size",
        "--pp-size": "--pipeline-parallel-size",
        "--dp": "--data-parallel-size",
        "--dp-size": "--data-parallel-size",
        "--ep-size": "--enable-expert-parallel",
        "--ep": "--enable-expert-parallel",
        "--mem-fraction-static": "--gpu-memory-utilization",
        "--context-length": "--max-model-len",
        "--max-running-requests": "--max-num-seqs",
        "--chunked-prefill-size": "--max-num-batched-tokens",
        "--disable-cuda-graph": "--enforce-eager",
        "--disable-radix-cache": "--no-enable-prefix-caching",
        "--tokenizer-path": "--tokenizer",
        "--random-seed": "--seed",
        "--speculative-algorithm": "--speculative-config",
        "--speculative-algo": "--speculative-config",
        "--speculative-draft-model-path": "--speculative-config",
        "--speculative-num-steps": "--speculative-config",
        "--speculative-num-draft-tokens": "--speculative-config",
    },
)

DIALECTS: Final[dict[str, Dialect]] = {"sglang": SGLANG, "vllm": VLLM}
