"""Plain torch.distributed groups, and servers that title their processes like an engine but are none we know."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.engines.base import EngineSpec, Recognised, arguments, flag, rank_of_title, whole
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.server import Engine, Rank

_TITLE: Final = re.compile(r"^(?P<prefix>[A-Za-z][\w.-]{0,40})::(?P<role>[A-Za-z][A-Za-z-]{0,40})(?P<rest>[\w]*)")
_LAUNCHERS: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch")


def environment(process: Process) -> dict[str, str]:
    return process.environ.value if isinstance(process.environ, Ok) else {}


def recognise(process: Process) -> Recognised | None:
    """RANK and WORLD_SIZE in the environment make a rank (torchrun, SLURM wrappers); torchrun itself is the root."""
    words = arguments(process)[:6]
    if any(w in _LAUNCHERS or w.rsplit("/", 1)[-1] == "torchrun" for w in words):
        return Recognised(engine="torch", role="launcher", root=True)
    env = environment(process)
    if env.get("RANK", "").isdigit() and env.get("WORLD_SIZE", "").isdigit() and _is_python(process):
        return Recognised(engine="torch", role="worker", rank=Rank(global_=int(env["RANK"])))
    return None


def recognise_titled(process: Process) -> Recognised | None:
    """`anything::worker_TP3`: the grammar both engines use, for engines that are not known by name."""
    match = _TITLE.match(process.title)
    if not match:
        return None
    rank = rank_of_title(match["rest"])
    role = match["role"].lower()
    engine: Engine = "demo" if match["prefix"] == "demo" else "unknown"
    if rank != Rank():
        return Recognised(engine=engine, role=role, rank=rank)
    return Recognised(engine=engine, role=role, root=role in ("frontend", "server", "router", "main"))


def _is_python(process: Process) -> bool:
    words = arguments(process)
    return process.name.startswith(("python", "pt_main", "torch")) or bool(words and "python" in words[0])


def world_size(root: Process) -> int | None:
    env = environment(root)
    if env.get("WORLD_SIZE", "").isdigit():
        return int(env["WORLD_SIZE"])
    words = arguments(root)
    per_node = flag(words, "--nproc-per-node", "--nproc_per_node")
    if per_node is None or not per_node.isdigit():
        return None
    return whole(per_node) if whole(flag(words, "--nnodes")) == 1 else None


SPEC = EngineSpec(name="torch", recognise=recognise, world_size=world_size)
TITLED = EngineSpec(name="unknown", recognise=recognise_titled, world_size=world_size)
