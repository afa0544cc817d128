"""Plain torch.distributed groups, and servers that title their processes like an engine but are none we know."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.engines.base import EngineSpec, Recognised, Sizes, arguments, flag, rank_of_title, whole
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.server import Rank

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
    if rank != Rank():
        return Recognised(engine="unknown", role=role, rank=rank)
    return Recognised(engine="unknown", role=role, root=role in ("frontend", "server", "router", "main"))


def _is_python(process: Process) -> bool:
    words = arguments(process)
    return process.name.startswith(("python", "pt_main", "torch")) or bool(words and "python" in words[0])


def sizes(process: Process) -> Sizes:
    env = environment(process)
    if env.get("WORLD_SIZE", "").isdigit():
        world = int(env["WORLD_SIZE"])
        if env.get("LOCAL_WORLD_SIZE", "").isdigit():
            return Sizes(world=world, local=int(env["LOCAL_WORLD_SIZE"]))
        alone = env.get("MASTER_ADDR", "localhost") in ("127.0.0.1", "localhost", "::1")
        return Sizes(world=world, local=world if alone else None)
    words = arguments(process)
    per_node = flag(words, "--nproc-per-node", "--nproc_per_node")
    if per_node is None or not per_node.isdigit():
        return Sizes()
    local = whole(per_node)
    return Sizes(world=local * whole(flag(words, "--nnodes")), local=local)


SPEC = EngineSpec(name="torch", recognise=recognise, sizes=sizes)


def sizes_titled(process: Process) -> Sizes:
    """What a rank's environment says, or the flags that most engines share."""
    stated = sizes(process)
    words = arguments(process)
    tp = flag(words, "--tensor-parallel-size", "--tp-size", "--tp")
    if stated.world is not None or tp is None or not tp.isdigit():
        return stated
    world = whole(tp) * whole(flag(words, "--pipeline-parallel-size", "--pp-size", "--pp"))
    return Sizes(world=world, local=world if flag(words, "--nnodes") in (None, "1") else None)


TITLED = EngineSpec(name="unknown", recognise=recognise_titled, sizes=sizes_titled)
