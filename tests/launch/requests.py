"""Requests, hosts and tables of options for tests of planning. The tables are those of the real engines, as probed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.launch import resolve
from gpudiag.launch.request import Host, Request
from gpudiag.model.flags import FlagTable
from gpudiag.model.modelfiles import DraftConfig, Drafter, ModelConfig, ModelFiles, Tensor
from gpudiag.model.run import LaunchPlan

FLAGS = Path(__file__).parent / "flags"
VERSIONS = {"sglang": "0.5.23", "vllm": "0.32.0"}
VARIABLES = {"PATH": "/usr/bin:/bin"}
"""The environment of whoever launches."""

HOST = Host(
    has_gpu=True, cpus=tuple(range(8)), numa_nodes=1, ras_port=28200, run_id="20260101-000000-abcd", run_directory="/runs/r1"
)


@cache
def table(engine: str) -> FlagTable:
    return msgspec.json.decode((FLAGS / f"{engine}-{VERSIONS[engine]}.json").read_bytes(), type=FlagTable)


def request(engine: str, *arguments: str, **changes: Any) -> Request:
    plain: dict[str, Any] = {
        "engine": engine,
        "python": f"/env/{engine}/bin/python",
        "model": "/models/target",
        "arguments": arguments,
    }
    return Request(**{**plain, **changes})


def config(**changes: Any) -> ModelConfig:
    plain: dict[str, Any] = {
        "architectures": ("LlamaForCausalLM",),
        "model_type": "llama",
        "hidden_size": 4096,
        "vocab_size": 128256,
        "layers": 32,
        "max_positions": 131072,
        "quantization": None,
        "dtype": "bfloat16",
    }
    return ModelConfig(**{**plain, **changes})


def files(**changes: Any) -> ModelFiles:
    return ModelFiles(path="/models/target", config=config(**changes), weight_bytes=16 << 30, shards=4)


def drafter(path: str, dtype: str = "BF16") -> Drafter:
    sizes: dict[str, Any] = dict.fromkeys(DraftConfig.__struct_fields__)
    return Drafter(
        path=path,
        architectures=("LlamaForCausalLMEagle3",),
        config=DraftConfig(**{**sizes, "speculators": False}),
        tensors=(
            Tensor(name="fc.weight", dtype=dtype, shape=(4, 12), file="model.safetensors"),
            Tensor(name="d2t", dtype="I64", shape=(4,), file="model.safetensors"),
        ),
    )


def planned(
    wanted: Request,
    home: Path,
    *,
    host: Host = HOST,
    flags: FlagTable | str | None = "recorded",
    variables: dict[str, str] | None = None,
    model: ModelFiles | None = None,
    draft: Drafter | None = None,
) -> LaunchPlan:
    """The plan of a request. `flags` None: the engine could not be asked for its options."""
    known = table(wanted.engine) if isinstance(flags, str) else flags
    around = VARIABLES if variables is None else variables
    model = model or files()
    chosen = resolve.profiles_for(wanted, model, host, around, home)
    resolver = resolve.Resolver(wanted, host, known, around, home)
    named = resolver.drafter(chosen, model)
    return resolver.plan(chosen, model, named, draft)


def value(plan: LaunchPlan, name: str) -> str | None:
    """The word after an option in the plan's argv; None if it is not there."""
    return plan.argv[plan.argv.index(name) + 1] if name in plan.argv else None
