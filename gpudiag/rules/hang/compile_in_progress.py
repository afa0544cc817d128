"""GPD314: everybody waits for a compiler that is at work. Slow, not hung."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.engines.recognise import COMPILERS
from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.node import Node
from gpudiag.model.process import GONE, Process
from gpudiag.model.stack import Frame, PyStack
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import Terminal, consequences, culprit, label, outsider, terminals, waited_for, waiting
from gpudiag.waits.motion import AWAKE, BUSY, Motion
from gpudiag.waits.picture import Picture

BUILD_FILES = (
    "torch/utils/cpp_extension.py",
    "tvm_ffi/cpp/build.py",
    "tvm_ffi/cpp/extension.py",
    "flashinfer/jit/core.py",
    "deep_gemm/jit/compiler.py",
)
"""Files that call a compiler in a process of its own, under the lock of a cache (tvm-ffi 0.1, flashinfer 0.6, DeepGEMM 1.0)."""

LONGEST_BUILD_S = 1200.0
"""SGLang says of DeepGEMM's kernels that they take 10 to 20 minutes."""

COMPILE_FILES = (
    "torch/_inductor/codecache.py",
    "torch/_inductor/compile_fx.py",
    "torch/_dynamo/convert_frame.py",
    "torch/_inductor/async_compile.py",
    *BUILD_FILES,
    "cutlass/base_dsl/compiler.py",
)
"""Files whose presence on a stack means that a kernel or a graph is being compiled (torch 2.14, flashinfer 0.6,
apache-tvm-ffi 0.1)."""

TRITON_FILES = ("triton/compiler/compiler.py", "triton/backends/nvidia/compiler.py")
TRITON_STEPS = frozenset({"compile", "make_ir", "ast_to_ttir", "make_ttir", "make_ttgir", "make_llir", "make_ptx", "make_cubin"})
"""Triton 3.7 launches kernels and loads modules from the same files: only these functions compile."""

_KEEP_CACHE = (
    "keep the compile cache between starts so that the next one is fast"
    " (TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR, TORCH_EXTENSIONS_DIR)"
)
MIN_SHARE = 0.05
"""Share of a processor below which a compiler is not at work, whatever its lines do."""


def evaluate(picture: Picture) -> Iterator[Finding]:
    yield from _elsewhere(picture)
    for end in terminals(picture):
        if end.motion not in BUSY or not _compiles(picture, end):
            continue
        used_s, span_s = _cpu_s(picture, end.process), picture.observation.span_s
        if end.motion is Motion.MOVING and used_s < MIN_SHARE * span_s:
            continue
        evidence = Evidence(
            source="cpu-time",
            claim=f"pid {end.pid} ({_tool(end.process)}) used {used_s:.1f} s of processor time in {span_s:.1f} s",
            excerpt=end.process.title[:120],
            at=picture.at,
        )
        owner = _owner(picture, end)
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{owner} compiles ({_tool(end.process)} is at work); {waiting(picture, end.cause)}: slow, not hung",
            links=((evidence,), *waited_for(picture, end.cause)),
            culprits=(culprit(picture, end.node),),
            consequences=consequences(picture, end.cause),
            next_steps=("wait; attach again in a minute: the compiler's processor time must have grown", _KEEP_CACHE),
        )


def _elsewhere(picture: Picture) -> Iterator[Finding]:
    """Another server on the host has the lock of a cache that both use, and compiles into it."""
    for cause in picture.causes:
        holder = outsider(picture, cause)
        at_work = [p for p in compilers_below(picture, holder) if p.state == "R"] if holder is not None else []
        if holder is None or not at_work:
            continue
        tool = at_work[-1]
        runs = Evidence(source="one-look", claim=f"pid {tool.pid} ({tool.name}) runs below pid {holder.pid}", at=picture.at)
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, cause.nodes[0])}, no part of this server, compiles ({tool.name} is at work) and has the"
            f" lock of the cache; {waiting(picture, cause)}: slow, not hung",
            links=((runs,), *waited_for(picture, cause)),
            culprits=(culprit(picture, cause.nodes[0]),),
            consequences=consequences(picture, cause),
            next_steps=(f"wait; see what it does: `gpudiag attach {holder.pid}`", _KEEP_CACHE),
        )


def compilers_below(picture: Picture, process: Process) -> list[Process]:
    """Parents before children: the last one is the compiler itself, not what started it."""
    below: dict[int, Process] = {}
    todo = [process]
    while todo:
        children = [c for c in picture.index.children.get(todo.pop().pid, ()) if c.pid not in below and c.state not in GONE]
        below |= {c.pid: c for c in children}
        todo += children
    return [p for p in below.values() if p.name in COMPILERS]


def compiling_frame(stack: PyStack) -> Frame | None:
    """The innermost frame in a compiler's file; a module that is only being imported does not compile."""
    return next((f for f in stack.frames if _compiles_in(f)), None)


def building(picture: Picture) -> Node | None:
    """A rank that has a kernel built, or waits until another process has: it stands there, and was seen to do something."""
    age_s = picture.demand.age_s
    if not picture.observation.has_change or (age_s is not None and age_s > LONGEST_BUILD_S):
        return None
    for member in picture.server.ranks:
        stack = picture.stack(member.pid, member.pid)
        # A frozen one waits for something else than its next look at a lock or at ninja.
        awake = picture.motion(member.pid, member.pid) in AWAKE
        if stack is not None and awake and any(part in f.file for f in stack.frames for part in BUILD_FILES):
            return node.process(member.pid)
    return None


def _compiles_in(frame: Frame) -> bool:
    if frame.file.endswith(TRITON_FILES):
        return frame.function.rsplit(".", 1)[-1] in TRITON_STEPS
    return frame.function != "<module>" and any(part in frame.file for part in COMPILE_FILES)


def _compiles(picture: Picture, end: Terminal) -> bool:
    names = {end.process.name, _tool(end.process)}
    if names & COMPILERS or (end.member is not None and end.member.role == "compiler"):
        return True
    stack = picture.stack(end.pid, end.tid)
    return stack is not None and compiling_frame(stack) is not None


def _tool(process: Process) -> str:
    return process.title.split(" ")[0].rsplit("/", 1)[-1] or process.name


def _owner(picture: Picture, end: Terminal) -> str:
    """The rank for which the compiler works: the nearest ancestor that is one."""
    current: Process | None = end.process
    seen: set[int] = set()
    while current is not None and current.pid not in seen:
        seen.add(current.pid)
        member = picture.server.member(current.pid)
        if member is not None and member.ranked:
            return label(picture, f"pid:{current.pid}")
        current = picture.index.by_pid.get(current.ppid)
    return label(picture, end.node)


def _cpu_s(picture: Picture, process: Process) -> float:
    """Seconds of processor time of all threads between the looks; 0 for a process that was not there at first."""
    first = picture.observation.first.process(process.pid)
    hz = picture.observation.last.host.clock_ticks
    return (process.cpu_ticks - first.cpu_ticks) / hz if first is not None and hz > 0 else 0.0


RULE = Rule(code="GPD314", name="compile-in-progress", severity="info", evaluate=evaluate, specificity=90)
