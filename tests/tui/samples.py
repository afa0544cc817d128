"""What the screens are shown: recordings of real servers, one of them widened to many ranks, logs of crashes, and starts."""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace

from gpudiag.logs.facts import read_facts
from gpudiag.model.communicator import Communicator, Nccl
from gpudiag.model.gpu import GpuInventory
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.run import LaunchPlan, Phase, PhaseProgress, RunManifest, RunProgress, RunState, Serving
from gpudiag.model.snapshot import Observation, Snapshot
from gpudiag.rules.log_verdict import explain_log
from gpudiag.session.load import load
from gpudiag.tui.build import frame_of_reports, frame_of_run, frames_of_recording
from gpudiag.tui.frame import Frame, Run, encode
from gpudiag.tui.state import State
from tests.support.checkout import ROOT

RECORDINGS = ROOT / "tests" / "recordings"
SHIFT = 1000
"""Between the pids of a process and of its copy for the next rank; more than there are threads."""
AT = 1_764_424_800.0


@cache
def recorded(name: str) -> tuple[Frame, ...]:
    """The frames of a recording, by its path below tests/recordings."""
    kept = load(RECORDINGS / f"{name}.gpudiag")
    return tuple(frames_of_recording(kept.observation, kept.logs))


@cache
def widened(ranks: int) -> tuple[Frame, ...]:
    """A group of so many ranks of which the last stays away: rank 0 of a recording on two H200s, copied."""
    observation = load(RECORDINGS / "gpu/h200x2/missing_rank.gpudiag").observation
    looks = tuple(_wide(s, ranks) for s in observation.snapshots)
    return tuple(frames_of_recording(Observation(snapshots=looks), ()))


def _wide(snapshot: Snapshot, ranks: int) -> Snapshot:
    root, first, last = (snapshot.process(pid) for pid in (601, 603, 604))
    assert root is not None
    assert first is not None
    assert last is not None
    waiting = [_copy(first, rank, ranks) for rank in range(ranks - 1)]
    absent = _copy(last, ranks - 1, ranks, shift=ranks * SHIFT)
    assert isinstance(snapshot.gpus, Ok)
    near, far = snapshot.gpus.value.gpus
    gpus = [
        replace(
            far if rank == ranks - 1 else near,
            index=rank,
            uuid=f"GPU-{rank:08x}-0000-0000-0000-000000000000",
            power_w=(far if rank == ranks - 1 else near).power_w,
            processes=tuple(
                replace(p, pid=absent.pid if rank == ranks - 1 else waiting[rank].pid)
                for p in (far if rank == ranks - 1 else near).processes
            ),
        )
        for rank in range(ranks)
    ]
    inventory = GpuInventory(driver=snapshot.gpus.value.driver, gpus=tuple(gpus))
    return replace(snapshot, processes=(root, *waiting, absent), gpus=replace(snapshot.gpus, value=inventory))


def _copy(process: Process, rank: int, ranks: int, shift: int | None = None) -> Process:
    by = rank * SHIFT if shift is None else shift
    assert isinstance(process.environ, Ok)
    assert isinstance(process.stacks, Ok)
    assert isinstance(process.syscalls, Ok)
    nccl = process.nccl
    assert isinstance(nccl, Ok)
    variables = {
        **process.environ.value,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
    }
    return replace(
        process,
        pid=process.pid + by,
        ns_pids=(process.pid + by,),
        environ=replace(process.environ, value=variables),
        threads=tuple(replace(t, tid=t.tid + by) for t in process.threads),
        stacks=replace(process.stacks, value=tuple(replace(s, tid=s.tid + by) for s in process.stacks.value)),
        syscalls=replace(process.syscalls, value={tid + by: call for tid, call in process.syscalls.value.items()}),
        nccl=replace(nccl, value=tuple(_group(n, rank, ranks) for n in nccl.value)),
    )


def _group(nccl: Nccl, rank: int, ranks: int) -> Nccl:
    def of_rank(communicator: Communicator) -> Communicator:
        return replace(communicator, rank=rank, size=ranks, cuda_device=rank, nvml_device=rank)

    return replace(nccl, communicators=tuple(map(of_rank, nccl.communicators)))


@cache
def crashed() -> tuple[Frame, ...]:
    """What is left of a server in its log."""
    facts = read_facts([str(ROOT / "tests/logs/data/vllm_raise_rank1.log.gz")])
    named = replace(facts, sources=tuple(replace(s, name="server.log") for s in facts.sources))
    report = replace(explain_log(named, version="0.1.0", host="node-1", took_s=0.1), generated_at="2026-11-29T14:00:00+00:00")
    return (frame_of_reports([report], at=AT, facts=named),)


PHASES: tuple[tuple[Phase, float, str], ...] = (
    ("import", 14.0, ""),
    ("distributed-init", 3.0, ""),
    ("weight-load", 26.0, "page cache"),
    ("kv-allocation", 1.2, ""),
    ("compile", 41.0, "inductor, 12 workers"),
    ("graph-capture", 19.0, ""),
    ("warm-up", 4.5, ""),
    ("ready", 0.4, ""),
)


SERVING = Serving(running=3, waiting=0, tokens_per_s=412.6, acceptance_length=2.84, acceptance_rate=0.46)
TAIL = (
    "[2026-11-29 14:00:02 TP0] Init torch distributed begin.",
    "[2026-11-29 14:00:05 TP0] Load weight begin. avail mem=139.21 GB",
)


RUN_ID = "20261129-140000-sglang"


def plan() -> LaunchPlan:
    return LaunchPlan(
        run_id=RUN_ID,
        run_directory=f"/var/tmp/gpudiag/{RUN_ID}",
        engine="sglang",
        version="0.5.23",
        python="/opt/venv/bin/python",
        argv=("/opt/venv/bin/python", "-m", "sglang.launch_server", "--tp", "8"),
        environment=(("NCCL_PROGRESS_COUNTERS", "1"),),
        settings=(),
        profile="kimi-k2.5",
        model="/models/kimi-k2.5",
        drafter="/models/kimi-k2.5-eagle3",
        host="127.0.0.1",
        port=30000,
        tensor_parallel=8,
        checkpoint_bytes=547_000_000_000,
    )


def launched(reached: Phase | None, state: RunState = "starting", *, sentence: str = "") -> Frame:
    """A start that has got as far as this phase, which is two thirds done; None: nothing was said yet."""
    manifest = RunManifest(
        run_id=RUN_ID,
        gpudiag="0.1.0",
        host="node-1",
        started_at=AT,
        supervisor_pid=4240,
        server_pid=4242 if reached else None,
        plan=plan(),
        log="server.log",
    )
    if reached is None:
        return frame_of_run(Run(manifest=manifest), number=1)
    phases: list[PhaseProgress] = []
    at = AT
    for name, took_s, detail in PHASES:
        if name != reached or state in ("serving", "stopped"):
            ended = at + took_s
            phases.append(PhaseProgress(phase=name, began_at=at, ended_at=ended, last_run_s=took_s * 1.1, detail=detail or None))
            at += took_s
        else:
            phases.append(_current(name, at, took_s, detail))
            at += took_s * 2 / 3
        if name == reached:
            break
    progress = RunProgress(
        run_id=manifest.run_id,
        at=at,
        state=state,
        phases=tuple(phases),
        serving=SERVING if state == "serving" else None,
        sentence=sentence or f"{reached}: under way",
        exit_status=1 if state == "crashed" else None,
    )
    return frame_of_run(Run(manifest=manifest, progress=progress, tail=TAIL), number=1)


def _current(name: Phase, began_at: float, took_s: float, detail: str) -> PhaseProgress:
    counted = name == "weight-load"
    return PhaseProgress(
        phase=name,
        began_at=began_at,
        last_run_s=took_s,
        done=364.7e9 if counted else None,
        total=547e9 if counted else None,
        unit="B" if counted else None,
        rate_per_s=21e9 if counted else None,
        eta_s=took_s / 3,
        detail=detail or None,
    )


def state_with(*frames: Frame, plain: bool = False, live: bool = False) -> State:
    state = State(live=live, plain=plain)
    for frame in frames:
        state.take(frame, encode(frame))
    return state
