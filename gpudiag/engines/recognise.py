"""Find the servers on a host and say what each of their processes is for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gpudiag.engines import sglang, torch, vllm
from gpudiag.engines.base import EngineSpec, Recognised, Sizes, arguments
from gpudiag.engines.frames import COMMON, WaitFrame
from gpudiag.model.process import GONE, Process
from gpudiag.model.reading import Ok
from gpudiag.model.server import Engine, Member, Rank, Server
from gpudiag.model.snapshot import Snapshot

SPECS: tuple[EngineSpec, ...] = (sglang.SPEC, vllm.SPEC, torch.TITLED, torch.SPEC)
"""In order of trust: the first that recognises a process decides."""

_TRUST: tuple[Engine, ...] = ("sglang", "vllm", "unknown", "torch")
"""Which engine a tree of processes is, where several are recognised in it: titles before inherited environments."""

COMPILERS = frozenset(
    [
        "ninja",
        "nvcc",
        "cicc",
        "ptxas",
        "fatbinary",
        "nvlink",
        "cudafe++",
        "cc1plus",
        "cc1",
        "g++",
        "gcc",
        "c++",
        "cc",
        "clang",
        "clang++",
        "ld",
        "ld.lld",
        "collect2",
        "as",
        "make",
        "cmake",
        "triton",
    ]
)
_TRACKERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_INTERPRETERS = ("python", "uv", "pt_main")


def recognise(snapshot: Snapshot) -> tuple[Server, ...]:
    """Every server whose processes are in the snapshot, by root pid. Light snapshots (command lines only) are enough."""
    by_pid = {p.pid: p for p in snapshot.processes}
    known = _without_heirs({p.pid: r for p in snapshot.processes if (r := _recognise(p)) is not None}, by_pid)
    groups: dict[int, list[int]] = defaultdict(list)
    lost = _orphans(by_pid, known)
    for pid in known:
        groups[_root(pid, by_pid, known, lost)].append(pid)
    tree = _children(by_pid)
    return tuple(
        _server(root, by_pid, known, _descendants(root, tree) | set(groups[root]), snapshot)
        for root in sorted(groups)
        if _serves(groups[root], known)
    )


def server_of(snapshot: Snapshot, pid: int) -> Server | None:
    """The server a process belongs to. A process of no known engine is the root of an unknown one; None if it is not there."""
    return servers_of(snapshot, (pid,))[0]


def servers_of(snapshot: Snapshot, pids: Iterable[int]) -> tuple[Server | None, ...]:
    """For each process the server that it belongs to, as `server_of` says; the snapshot is gone through once for all."""
    by_member: dict[int, Server] = {}
    for server in recognise(snapshot):
        for member in server.members:
            by_member.setdefault(member.pid, server)
    by_pid = {p.pid: p for p in snapshot.processes}
    tree = _children(by_pid)
    return tuple(
        by_member.get(pid) or (_server(pid, by_pid, {}, _descendants(pid, tree), snapshot) if pid in by_pid else None)
        for pid in pids
    )


def wait_frames(engine: Engine) -> tuple[WaitFrame, ...]:
    """The wait-frame table that holds for a server: the engine's own rows first, then what every program shares."""
    own = next((s.wait_frames for s in SPECS if s.name == engine), ())
    return own + COMMON


def _recognise(process: Process) -> Recognised | None:
    for spec in SPECS:
        found = spec.recognise(process)
        if found is not None:
            return found
    return None


def _without_heirs(known: Mapping[int, Recognised], by_pid: Mapping[int, Process]) -> dict[int, Recognised]:
    """Leave out processes that are a rank only by an inherited environment: compile workers and tools below a rank."""
    return {
        pid: r
        for pid, r in known.items()
        if r.engine != "torch" or r.rank == Rank() or (parent := known.get(by_pid[pid].ppid)) is None or parent.rank == Rank()
    }


def _root(pid: int, by_pid: Mapping[int, Process], known: Mapping[int, Recognised], lost: Mapping[_Kin, int]) -> int:
    """Climb to the topmost process of the same engine, or to the script that started an engine as a library."""
    top, seen = pid, {pid}
    while (parent := by_pid.get(by_pid[top].ppid)) is not None and parent.pid > 1 and parent.pid not in seen:
        seen.add(parent.pid)
        if known[top].root:
            return top
        if parent.pid not in known:
            if _starts_engines(parent):
                return parent.pid
            break
        if known[parent.pid].engine != known[pid].engine:
            break
        top = parent.pid
    return top if top != pid or known[pid].root else lost.get(_kin(by_pid[pid], known[pid]), pid)


def _starts_engines(process: Process) -> bool:
    """Whether this can be the user's own script around an engine: a Python interpreter that runs neither us nor a test runner."""
    words = [w.rsplit("/", 1)[-1] for w in arguments(process)[:4]]
    if any(w in ("gpudiag", "pytest") for w in words):
        return False
    return process.name.startswith(_INTERPRETERS) or bool(words and words[0].startswith(_INTERPRETERS))


_Kin = tuple[Engine, int, int]
"""Engine, session and parent."""


def _kin(process: Process, recognised: Recognised) -> _Kin:
    return recognised.engine, process.session, process.ppid


def _orphans(by_pid: Mapping[int, Process], known: Mapping[int, Recognised]) -> dict[_Kin, int]:
    """The lowest pid of those workers that lost their parent and share a session: together they stay one server."""
    first: dict[_Kin, int] = {}
    for pid, recognised in known.items():
        if not recognised.root and by_pid[pid].session:
            kin = _kin(by_pid[pid], recognised)
            first[kin] = min(pid, first.get(kin, pid))
    return first


def _serves(pids: Iterable[int], known: Mapping[int, Recognised]) -> bool:
    """A launcher alone (torchrun that has started nothing) is no server; anything with a rank or a root is."""
    return any(known[p].rank != Rank() or known[p].root for p in pids)


def _server(
    root: int, by_pid: Mapping[int, Process], known: Mapping[int, Recognised], pids: set[int], snapshot: Snapshot
) -> Server:
    engines = {known[p].engine for p in pids if p in known}
    engine: Engine = next((e for e in _TRUST if e in engines), "unknown")
    if engine != "torch":
        # RANK in an environment is inherited by every helper of a rank; where titles name the ranks, only titles count.
        known = {p: known[p] for p in pids if p in known and (known[p].engine != "torch" or known[p].rank == Rank())}
    spec = next((s for s in SPECS if s.name == engine), torch.TITLED)
    stated = (spec.sizes(by_pid[root]), *(torch.sizes(by_pid[p]) for p in sorted(pids)))
    sizes = next((s for s in stated if s.world is not None), Sizes())
    several = (sizes.world or 1) > 1 or sum(p in known and not known[p].numbered for p in pids) > 1
    members = tuple(sorted((_member(by_pid[p], known.get(p), root, several=several) for p in pids), key=lambda m: m.pid))
    return Server(
        engine=engine,
        root_pid=root,
        members=members,
        world_size=sizes.world,
        local_size=sizes.local,
        listen=_listen(pids, by_pid, snapshot),
    )


def _member(process: Process, recognised: Recognised | None, root: int, *, several: bool) -> Member:
    """`several`: whether the server is known to have more than one rank, so that one without a number may be any of them."""
    if recognised is not None:
        # A zombie has only the kernel's 15-byte name left, in which the rank is cut off.
        if process.state in GONE:
            return Member(pid=process.pid, role=recognised.role)
        if several and not recognised.numbered:
            return Member(pid=process.pid, role=recognised.role, unnumbered=True)
        return Member(pid=process.pid, role=recognised.role, rank=recognised.rank)
    words = arguments(process)
    if process.name in COMPILERS or (words and words[0].rsplit("/", 1)[-1] in COMPILERS):
        role = "compiler"
    elif any(t in w for w in words for t in _TRACKERS):
        role = "tracker"
    elif process.state in GONE:
        role = "dead"
    elif process.pid == root:
        role = "root"
    elif any(w == "--multiprocessing-fork" or "spawn_main" in w for w in words):
        role = "starting"
    else:
        role = "helper"
    return Member(pid=process.pid, role=role)


def _children(by_pid: Mapping[int, Process]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = defaultdict(list)
    for process in by_pid.values():
        children[process.ppid].append(process.pid)
    return children


def _descendants(root: int, children: Mapping[int, Sequence[int]]) -> set[int]:
    found, todo = {root}, [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def _listen(pids: set[int], by_pid: Mapping[int, Process], snapshot: Snapshot) -> tuple[str, ...]:
    """TCP addresses that any process of the server listens on, those of gloo and of rendezvous stores among them."""
    if not isinstance(snapshot.sockets, Ok):
        return ()
    owned = {fd.inode for pid in pids if isinstance(fds := by_pid[pid].fds, Ok) for fd in fds.value if fd.kind == "socket"}
    if not owned:
        return ()
    return tuple(s.local for s in snapshot.sockets.value if s.family == "tcp" and s.state == "LISTEN" and s.inode in owned)
