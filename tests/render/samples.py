"""Reports of every kind, made by hand."""

from __future__ import annotations

from gpudiag.model.finding import Confidence, Consequence, Culprit, Evidence, Severity
from gpudiag.model.report import Cost, NotRead, Report, ReportedFinding, ServerState, Status, Target, Verdict, Worker
from gpudiag.model.server import Engine, Rank
from gpudiag.model.wait import Need, Wait, WaitKind

AT = 1_764_424_800.0
SITE = "/opt/venv/lib/python3.12/site-packages"
LOCK = "/home/alice/.cache/torch_extensions/py312_cu130/fused_rope_kernels/lock"
BATON = f"wait ({SITE}/torch/utils/file_baton.py:51)"
ALL_REDUCE = f"all_reduce ({SITE}/torch/distributed/distributed_c10d.py:3047)"
RECV = f"recv_multipart ({SITE}/zmq/sugar/socket.py:804)"


def node(pid: int, tid: int | None = None) -> str:
    return f"pid:{pid}/tid:{tid or pid}"


def evidence(source: str, claim: str, excerpt: str = "") -> Evidence:
    return Evidence(source=source, claim=claim, excerpt=excerpt, at=AT)


def wait(waiter: str, holder: str, kind: WaitKind, need: Need = "reply") -> Wait:
    return Wait(waiter=waiter, holder=holder, kind=kind, need=need, evidence=(evidence("python-stack", "it stands there"),))


def worker(
    pid: int, rank: int | None, state: str, where: str | None, *waits_for: str, role: str = "scheduler", gpu: str | None = None
) -> Worker:
    coordinates = Rank(global_=rank, tp=rank) if rank is not None else Rank()
    return Worker(pid=pid, role=role, rank=coordinates, gpu=gpu, state=state, where=where, waits_for=waits_for)


def finding(
    code: str,
    name: str,
    title: str,
    *proof: Evidence,
    severity: Severity = "error",
    confidence: Confidence = "proven",
    steps: tuple[str, ...] = (),
    consequences: tuple[Consequence, ...] = (),
    subjects: tuple[str, ...] = (),
) -> ReportedFinding:
    return ReportedFinding(
        code=code,
        name=name,
        severity=severity,
        confidence=confidence,
        title=title,
        subjects=subjects,
        evidence=proof,
        next_steps=steps,
        runbook=f"{code}-{name}.md",
        consequences=consequences,
    )


def report(
    *findings: ReportedFinding,
    state: ServerState = "hung",
    workers: tuple[Worker, ...] = (),
    culprits: tuple[Culprit, ...] = (),
    waits: tuple[Wait, ...] = (),
    not_read: tuple[NotRead, ...] = (),
    engine: Engine = "sglang",
    root: int = 41200,
    status: Status = "finding",
    title: str = "",
    next_step: str = "",
    wall_s: float = 1.31,
    host: str = "node-1",
) -> Report:
    first = findings[0] if findings and status == "finding" else None
    return Report(
        gpudiag="0.1.0",
        host=host,
        generated_at="2026-11-29T14:03:12Z",
        command="attach",
        target=Target(
            engine=engine, version="0.5.17" if engine == "sglang" else None, root_pid=root, state=state, workers=workers
        ),
        verdict=Verdict(
            status=status,
            code=first.code if first else None,
            name=first.name if first else None,
            severity=first.severity if first else None,
            title=first.title if first else title,
            confidence=first.confidence if first else None,
            next_step=first.next_steps[0] if first and first.next_steps else next_step,
            culprits=culprits,
        ),
        findings=findings,
        waits=waits,
        not_read=not_read,
        cost=Cost(wall_s=wall_s, stopped_s=0.0),
    )


NATIVE_NOT_ASKED = NotRead(source="native stacks", reason="not asked for", help="")


def idle_front(root: int, count: int) -> tuple[Worker, ...]:
    return (
        worker(root, None, "waiting", RECV, node(root + 1), role="frontend"),
        worker(root + count + 1, None, "idle", RECV, role="detokenizer"),
    )


def healthy() -> Report:
    workers = tuple(worker(41201 + r, r, "running", f"forward ({SITE}/sglang/srt/models/llama.py:210)") for r in range(2))
    return report(
        state="serving",
        status="healthy",
        title="serving: 2 of 2 ranks moved in 1.0 s, and nobody waits for one that does not",
        workers=(worker(41200, None, "running", RECV, role="frontend"), *workers),
        not_read=(NATIVE_NOT_ASKED,),
    )


def idle() -> Report:
    workers = tuple(worker(41201 + r, r, "idle", f"broadcast_pyobj ({SITE}/sglang/srt/utils/common.py:2715)") for r in range(2))
    return report(
        finding(
            "GPD318",
            "idle-not-hung",
            "the server is idle, not hung: no request is in flight",
            evidence("socket-table", "no client connection waits for an answer", "0 of 2 connections with unread bytes"),
            evidence("two-looks", "no thread of the request path moved in 2 looks over 1.0 s"),
            severity="info",
            confidence="strong",
            steps=("send one request and look again while it runs",),
        ),
        state="idle",
        workers=(worker(41200, None, "idle", RECV, role="frontend"), *workers),
        waits=(wait(node(41202), node(41201), "collective", "work"),),
        not_read=(NATIVE_NOT_ASKED,),
    )


def stale_lock() -> Report:
    """4 ranks, rank 2 waits for the lock of a killed build."""
    victim, others = 41203, (41201, 41202, 41204)
    ranks = [worker(p, p - 41201, "waiting", ALL_REDUCE, node(victim)) for p in others]
    ranks.append(worker(victim, 2, "lock", BATON, f"file:{LOCK}"))
    front = idle_front(41200, 4)
    waits = (
        wait(node(victim), f"file:{LOCK}", "file-lock"),
        *(wait(node(p), node(victim), "collective") for p in others),
        wait(node(41200), node(41201), "ipc"),
        wait("outside", node(41200), "socket"),
        wait(node(41205), node(41201), "ipc", "work"),
    )
    consequences = tuple(Consequence(node=node(p), title=f"rank {p - 41201} waits for rank 2 in {ALL_REDUCE}") for p in others)
    return report(
        finding(
            "GPD307",
            "stale-file-lock-wait",
            "rank 2 waits for a lock file that no process has open; 3 ranks and 1 request wait for it",
            evidence("python-stack", f"thread {victim} loops until {LOCK} is gone", f"pid {victim} tid {victim}: {BATON}"),
            evidence("file-system", f"{LOCK} exists", "inode 5505045, 0 bytes, modified 2026-11-29 13:21:40 UTC, ext4"),
            evidence("open-files", "no process on this host has it open (all were readable)"),
            evidence("two-looks", f"thread {victim} did not move in 2 looks over 1.0 s"),
            steps=(
                f"make sure that no build is running on any host that shares this path, then `rm {LOCK}`",
                "the waiting process goes on by itself once the file is gone; no restart is needed",
            ),
            consequences=consequences,
            subjects=(f"file:{LOCK}", node(victim)),
        ),
        workers=(*front[:1], *sorted(ranks, key=lambda w: w.pid), *front[1:]),
        culprits=(
            Culprit(
                node=node(victim),
                pid=victim,
                tid=victim,
                rank=2,
                function="wait",
                file=f"{SITE}/torch/utils/file_baton.py",
                line=51,
                path=LOCK,
            ),
        ),
        waits=waits,
        not_read=(NATIVE_NOT_ASKED,),
    )


def stopped(count: int = 8) -> Report:
    """`count` ranks of vLLM, one of them stopped by a signal."""
    first, victim = 4001, 4001 + count // 2 + 1
    ranks = [
        worker(p, p - first, "waiting", ALL_REDUCE, node(victim), role="worker")
        for p in range(first, first + count)
        if p != victim
    ]
    ranks.append(
        worker(victim, victim - first, "stopped", f"forward ({SITE}/vllm/model_executor/models/llama.py:512)", role="worker")
    )
    core = 4000
    dequeue = f"dequeue ({SITE}/vllm/distributed/device_communicators/shm_broadcast.py:611)"
    waits = (
        *(wait(node(w.pid), f"pid:{victim}", "collective") for w in ranks if w.pid != victim),
        wait(node(core), f"pid:{victim}", "ipc"),
        wait(node(3990), node(core), "ipc"),
        wait("outside", node(3990), "socket"),
    )
    return report(
        finding(
            "GPD305",
            "process-stopped",
            f"rank {victim - first} is stopped; {count - 1} ranks and 1 request wait for it",
            evidence("process-state", f"pid {victim} is stopped by a signal (state T) in every look", "State: T, TracerPid: 0"),
            steps=(
                f"let it run again: `kill -CONT {victim}` (after finding out who stopped it: a debugger, a job shell, a freezer)",
            ),
            consequences=tuple(Consequence(node=node(w.pid), title="waits") for w in ranks if w.pid != victim),
        ),
        finding(
            "GPD109",
            "ptrace-not-permitted",
            "stacks of 2 processes could not be read",
            evidence("permissions", "CAP_SYS_PTRACE is missing", "CapEff: 00000000a80425fb"),
            severity="warning",
            confidence="proven",
            steps=("docker run --cap-add=SYS_PTRACE ...",),
        ),
        engine="vllm",
        root=3990,
        workers=(
            worker(3990, None, "waiting", f"poll ({SITE}/zmq/_poll.py:106)", node(core), role="api-server"),
            worker(core, None, "waiting", dequeue, f"pid:{victim}", role="engine-core"),
            *sorted(ranks, key=lambda w: w.pid),
        ),
        culprits=(Culprit(node=f"pid:{victim}", pid=victim, tid=victim, rank=victim - first),),
        waits=waits,
        not_read=(
            NATIVE_NOT_ASKED,
            NotRead(
                source="python stacks of pid 3990",
                reason="the process belongs to uid 1000 and this user may not trace it",
                help="sudo /opt/venv/bin/gpudiag attach 3990",
            ),
        ),
    )


def lock_cycle() -> Report:
    """Two threads of rank 1 hold one lock each and want the other's; the rest waits in a collective."""
    main, helper = node(702), node(702, 733)
    ranks = [
        worker(p, p - 701, "waiting", "all_reduce (/srv/engine/ring.py:88)", node(702), role="worker") for p in (701, 703, 704)
    ]
    ranks.append(worker(702, 1, "lock", "take (/srv/engine/pool.py:40)", helper, role="worker"))
    return report(
        finding(
            "GPD306",
            "wait-cycle",
            "rank 1: threads 702 and 733 wait for each other; 3 ranks and 1 request wait for it",
            evidence("lock-address", "thread 702 is blocked on self._free at take (/srv/engine/pool.py:40)", "with self._free:"),
            evidence("lock-address", "thread 733 holds the same lock as self._free at give (/srv/engine/pool.py:52)"),
            evidence("lock-address", "thread 733 is blocked on self._used at give (/srv/engine/pool.py:54)", "with self._used:"),
            steps=("this is a deadlock: it cannot end by itself; restart the server",),
        ),
        engine="demo",
        root=700,
        workers=(
            worker(700, None, "waiting", "read (/srv/engine/front.py:30)", node(701), role="frontend"),
            *sorted(ranks, key=lambda w: w.pid),
        ),
        culprits=(
            Culprit(node=main, pid=702, tid=702, rank=1, function="take", file="/srv/engine/pool.py", line=40),
            Culprit(node=helper, pid=702, tid=733, rank=1, function="give", file="/srv/engine/pool.py", line=54),
        ),
        waits=(
            wait(main, helper, "lock"),
            wait(helper, main, "lock"),
            *(wait(node(p), main, "collective") for p in (701, 703, 704)),
            wait(node(700), node(701), "ipc"),
        ),
    )


def mismatch() -> Report:
    """8 ranks: rank 6 gathers while the others reduce."""
    reduce, gather = "reduce (/srv/engine/ring.py:88)", "gather (/srv/engine/ring.py:120)"
    pids = range(801, 809)
    odd = 807
    ranks = tuple(
        worker(
            p,
            p - 801,
            "waiting",
            gather if p == odd else reduce,
            *((node(odd),) if p != odd else tuple(node(q) for q in pids if q != odd)),
        )
        for p in pids
    )
    waits = [wait(node(p), node(odd), "collective") for p in pids if p != odd]
    waits += [wait(node(odd), node(p), "collective") for p in pids if p != odd]
    culprits = [
        Culprit(
            node=node(p),
            pid=p,
            tid=p,
            rank=p - 801,
            function="gather" if p == odd else "reduce",
            file="/srv/engine/ring.py",
            line=120 if p == odd else 88,
        )
        for p in (odd, *(p for p in pids if p != odd))
    ]
    return report(
        finding(
            "GPD302",
            "collective-mismatch",
            "ranks call different collectives: rank 6 in gather, ranks 0, 1, 2, 3, 4, 5, 7 in reduce",
            *(evidence("python-stack", f"rank {p - 801} stands in {'gather' if p == odd else 'reduce'}") for p in pids),
            *(evidence("two-looks", f"thread {p} did not move in 2 looks over 1.0 s") for p in pids),
            confidence="weak",
            steps=("compare the lines named above: all ranks of a group must issue the same collectives in the same order",),
        ),
        engine="torch",
        root=800,
        workers=(worker(800, None, "unknown", None, role="launcher"), *ranks),
        culprits=tuple(culprits),
        waits=tuple(waits),
    )


def insufficient() -> Report:
    return report(
        status="insufficient",
        state="unknown",
        title="not enough evidence: Python stacks could not be read",
        next_step="sudo gpudiag attach 41200",
        workers=(
            worker(41200, None, "unknown", None, role="frontend"),
            worker(41201, 0, "unknown", None),
            worker(41202, 1, "unknown", None),
        ),
        not_read=(
            NotRead(
                source="python stacks",
                reason="py-spy may not read the memory of pid 41201 and 1 more",
                help="sudo gpudiag attach 41200",
            ),
            NotRead(source="open files", reason="/proc/41201/fd: permission denied", help="sudo gpudiag attach 41200"),
            NATIVE_NOT_ASKED,
        ),
        wall_s=1.04,
    )


HOSTILE = "\x1b[2J\x1b]0;owned\x07 `rm -rf /` | <script>alert(1)</script> \u202eevil\u202c \udcff @everyone #1\nsecond\r\x9b31m"


def hostile() -> Report:
    """Every string that could come from a target is hostile."""
    path = f"/tmp/{HOSTILE}"
    return report(
        finding(
            "GPD307",
            "stale-file-lock-wait",
            f"rank 0 waits for {HOSTILE}",
            evidence("python-stack", HOSTILE, f"{HOSTILE}\n```\n</details>\n"),
            steps=(f"rm {path}",),
            consequences=(Consequence(node=node(2), title=HOSTILE),),
        ),
        host=HOSTILE,
        engine="unknown",
        root=1,
        workers=(
            worker(1, 0, HOSTILE, HOSTILE, f"file:{path}", role=HOSTILE),
            worker(2, 1, "waiting", f"{HOSTILE} ({HOSTILE}:3)", node(1)),
        ),
        culprits=(
            Culprit(node=node(1), pid=1, tid=1, rank=0, function=HOSTILE, file=HOSTILE, line=3, path=path, kernel=HOSTILE),
        ),
        waits=(wait(node(1), f"file:{path}", "file-lock"), wait(node(2), node(1), "collective")),
        not_read=(NotRead(source=HOSTILE, reason=HOSTILE, help=HOSTILE),),
    )


SAMPLES = {
    "healthy": healthy,
    "idle": idle,
    "stale-lock-4": stale_lock,
    "stopped-8": stopped,
    "stopped-64": lambda: stopped(64),
    "lock-cycle-4": lock_cycle,
    "mismatch-8": mismatch,
    "insufficient": insufficient,
    "hostile": hostile,
}
