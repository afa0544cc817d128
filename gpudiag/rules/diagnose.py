"""From an observation to a report: all rules, the order of blame, the one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from gpudiag.engines.frames import telling_frame
from gpudiag.model import node
from gpudiag.model.finding import SEVERITY_ORDER, Finding
from gpudiag.model.node import Node
from gpudiag.model.process import GONE, STOPPED, Process
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable, value_or
from gpudiag.model.report import Cost, NotRead, Report, ReportedFinding, ServerState, Target, Verdict, Worker
from gpudiag.model.server import Member, Server
from gpudiag.model.snapshot import Observation
from gpudiag.rules.hang.compile_in_progress import building
from gpudiag.rules.hang.standing import label, outsider
from gpudiag.rules.registry import RULES
from gpudiag.rules.verdict import verdict_of, verdict_without_finding
from gpudiag.waits.device import sync_frame
from gpudiag.waits.gpus import UNCLEAR, WAITING
from gpudiag.waits.motion import AWAKE, BUSY, Motion
from gpudiag.waits.nccl import launched
from gpudiag.waits.picture import Picture

SLOW = frozenset({"GPD314", "GPD316"})
STARTING = frozenset({"GPD315"})
IDLE = "GPD318"
NO_RIGHTS = "GPD109"
_READINGS = ("cmdline", "environ", "fds", "syscalls", "futexes", "stacks", "lock_uses", "file_polls", "io", "nccl")
SHOWN_PIDS = 8
"""How many processes a line about unread sources names."""
_EXPLAIN = "`gpudiag explain LOG`"
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_NEEDED = frozenset({"fds", "syscalls", "stacks", "sockets"})


def diagnose(observation: Observation, server: Server, *, command: str, version: str, wall_s: float | None = None) -> Report:
    """Judge one server. `wall_s` is what the looking cost; without it, what the looks themselves say."""
    picture = Picture(observation, server)
    findings = rank_findings(picture, [f for rule in RULES for f in rule.evaluate(picture)])
    verdict = _verdict(picture, findings)
    return Report(
        gpudiag=version,
        host=observation.last.host.name,
        generated_at=datetime.fromtimestamp(observation.last.at, UTC).isoformat(timespec="seconds"),
        command=command,
        target=Target(
            engine=server.engine,
            version=server.version,
            root_pid=server.root_pid,
            state=_state(picture, verdict),
            workers=tuple(_worker(picture, m) for m in _shown(picture)),
        ),
        verdict=verdict,
        findings=tuple(ReportedFinding.of(f) for f in findings),
        waits=picture.waits,
        not_read=_not_read(picture),
        cost=Cost(
            wall_s=round(wall_s if wall_s is not None else observation.span_s + observation.last.took_s, 3),
            stopped_s=round(sum(s.stopped_s for s in observation.snapshots), 4),
        ),
    )


def is_partial(report: Report) -> bool:
    """Whether a source that the verdict needs could not be read ('not asked for' is not partial)."""
    if report.verdict.status == "finding" and report.verdict.confidence == "proven":
        return False
    return any(n.source.split(" ")[0] in _NEEDED for n in report.not_read)


def is_blind(report: Report) -> bool:
    """Whether the target is there and nothing that matters could be read from any of its processes."""
    if report.verdict.status != "insufficient" or report.target is None or not report.target.workers:
        return False
    shown = min(len(report.target.workers), SHOWN_PIDS)
    unread = {n.source.split(" ")[0]: n.source.count(",") + 1 for n in report.not_read if " of pid " in n.source}
    return all(unread.get(name, 0) >= shown for name in ("fds", "syscalls", "stacks"))


def rank_findings(picture: Picture, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Most blamed first; on one culprit only the most specific finding stays."""
    order = {
        n: i
        for i, cause in enumerate(picture.causes)
        for n in (*cause.nodes, *(e.waiter for t in cause.nodes for e in picture.edges_to(t)))
    }
    terminal = {n: i for i, cause in enumerate(picture.causes) for n in cause.nodes}
    specificity = {r.code: r.specificity for r in RULES}
    best: dict[Node, Finding] = {}
    for finding in findings:
        key = _place(picture, finding.culprits[0].node) if finding.culprits else finding.code
        if key not in best or specificity[finding.code] > specificity[best[key].code]:
            best[key] = finding

    def blame(finding: Finding) -> tuple[int, int, int, str]:
        nodes = [*finding.subjects, *(c.node for c in finding.culprits)]
        place = min((terminal.get(n, order.get(n, len(order) + 1)) for n in nodes), default=len(order) + 1)
        return (place, -SEVERITY_ORDER[finding.severity], -specificity[finding.code], finding.code)

    return tuple(sorted(best.values(), key=blame))


def _place(picture: Picture, target: Node) -> Node:
    """A process and its main thread are one place to look at."""
    pid = node.pid_of(target)
    return picture.index.owner(pid) if pid is not None and node.tid_of(target) in (None, pid) else target


def _verdict(picture: Picture, findings: tuple[Finding, ...]) -> Verdict:
    speaking = [f for f in findings if f.code not in (NO_RIGHTS, IDLE)] or [f for f in findings if f.code == IDLE]
    if speaking:
        return verdict_of(speaking[0])
    serving = _serving(picture)
    if serving is not None:
        return verdict_without_finding("healthy", serving, "nothing to do")
    return _insufficient(picture, findings)


def _serving(picture: Picture) -> str | None:
    """Why the server counts as serving: every rank was seen to run, or to wait for one that does."""
    ranks = [m for m in picture.server.ranks if picture.index.alive(m.pid)]
    if not ranks or picture.lost or any(not picture.any_motion(c.nodes, BUSY) for c in picture.causes):
        return None
    if picture.demand.why == "client" and picture.generates is None and building(picture) is not None:
        return None
    ran = [m for m in ranks if _ran(picture, m)]
    if picture.generates is None and not picture.traffic and not any(_progresses(picture, m) for m in ran):
        return None
    rest = [m for m in ranks if m not in ran]
    if not ran or any(not _waits_visibly(picture, m) for m in rest):
        return None
    span = f"{picture.observation.span_s:.1f} s"
    return f"serving: {len(ran)} of {len(ranks)} ranks ran in {span}, and nobody waits for one that does not"


def _ran(picture: Picture, member: Member) -> bool:
    """Whether a rank did something between the looks. Using the processor in a wait for the GPU is nothing by itself."""
    count = launched(picture, member.pid)
    if count:
        return True
    device = picture.devices.get(member.pid)
    stuck = device is not None and device.state in WAITING and count == 0
    blind = sync_frame(picture.stack(member.pid, member.pid)) is not None and (device is None or device.state in UNCLEAR)
    return not stuck and not blind and picture.motion(member.pid, member.pid) in AWAKE


def _progresses(picture: Picture, member: Member) -> bool:
    """Other lines, or collectives launched; a thread that runs at one line may only be waiting noisily."""
    return picture.motion(member.pid, member.pid) is Motion.MOVING or bool(launched(picture, member.pid))


def _waits_visibly(picture: Picture, member: Member) -> bool:
    known = picture.known(member.pid, member.pid)
    return bool(picture.edges_from(node.thread(member.pid, member.pid))) or (known is not None and known.need == "work")


def _insufficient(picture: Picture, findings: tuple[Finding, ...]) -> Verdict:
    more = " --flight-recorder" if _offers_dumps(picture) else ""
    closer = f"`gpudiag attach {picture.server.root_pid} --once --confirm --native{more}`"
    permission = next((f for f in findings if f.code == NO_RIGHTS), None)
    candidates = [label(picture, c.nodes[0]) for c in picture.causes[:3]]
    if (counted := picture.generates) is not None:
        came = f"{counted.after - counted.before:.0f} tokens came in {counted.over_s:.1f} s"
        title = f"not hung as far as can be seen: by its own counters {came}"
        return verdict_without_finding("insufficient", title, "wait for the answer; with several replicas see which one owes it")
    if (builds := building(picture)) is not None and not picture.causes:
        title = f"not hung as far as can be seen: {label(picture, builds)} builds a kernel, or waits until another process has"
        return verdict_without_finding("insufficient", title, "attach again in a moment: it should stand elsewhere")
    if (busy := _at_work(picture)) is not None:
        title = f"not hung as far as can be seen: {label(picture, busy)} is at work"
        return verdict_without_finding("insufficient", title, "attach again in a moment: it should stand elsewhere")
    if permission is not None:
        why = "Python stacks could not be read"
        step = permission.next_steps[0] if permission.next_steps else ""
    elif (unread := _unread_stacks(picture)) is not None:
        why, step = f"Python stacks could not be read: {unread.reason}", unread.help or f"look at the log: {_EXPLAIN}"
    elif not picture.observation.has_change:
        why = "one look says nothing about what moves"
        step = "attach to the live server, or record two looks"
    elif candidates:
        why = f"the waits end at {', '.join(candidates)}, and what it waits for is not visible"
        outside = outsider(picture, picture.causes[0])
        step = f"see what it does: `gpudiag attach {outside.pid}`" if outside is not None else f"look closer: {closer}"
    else:
        why = "nothing that was read says who waits for whom"
        step = f"take a third look and native stacks: {closer}"
    return verdict_without_finding("insufficient", f"not enough evidence: {why}", step)


def _unread_stacks(picture: Picture) -> Unavailable | None:
    """Why stacks are missing, where the main processes of the server have none at all."""
    readings = [p.stacks for m, p in picture.members() if m.ranked or m.pid == picture.server.root_pid]
    if not readings or any(isinstance(r, Ok) for r in readings):
        return None
    return next((r for r in readings if isinstance(r, Unavailable)), None)


def _offers_dumps(picture: Picture) -> bool:
    """Whether ranks were started so that they dump torch's flight recorder when asked, and nobody has asked."""
    flight = picture.observation.last.flight
    asked = isinstance(flight, Ok) and flight.value.asked
    return not asked and any(_PIPE in value_or(p.environ, {}) for _, p in picture.members())


def _at_work(picture: Picture) -> Node | None:
    """The thread that everybody waits for, or the root of a server without ranks, if it was seen to do something."""
    root = node.thread(picture.server.root_pid, picture.server.root_pid)
    ranks = [m for m in picture.server.ranks if picture.index.alive(m.pid)]
    ends = [c.nodes for c in picture.causes] or ([(root,)] if not ranks else [])
    return next((nodes[0] for nodes in ends if picture.any_motion(nodes, BUSY)), None)


def _state(picture: Picture, verdict: Verdict) -> ServerState:
    if verdict.status == "healthy":
        return "serving"
    if verdict.status == "insufficient" or verdict.code is None:
        if picture.generates is not None:
            return "serving"
        coming_up = picture.demand.why == "start" or not picture.server.ranks
        at_work = _at_work(picture) is not None or (building(picture) is not None and not picture.causes)
        return ("starting" if coming_up else "slow") if at_work else "unknown"
    if verdict.code == IDLE:
        return "idle"
    if verdict.code in STARTING:
        return "starting"
    if verdict.code in SLOW:
        return "slow"
    if not picture.causes and not verdict.code.startswith("GPD3"):
        # Failing hardware is found on servers that still serve.
        return "serving" if _serving(picture) is not None else "unknown"
    return "hung" if verdict.severity == "error" else "slow"


def _shown(picture: Picture) -> tuple[Member, ...]:
    """Members in the order a person expects: ranks first, then the processes around them; pools and trackers left out."""
    ranks = picture.server.ranks
    rest = [m for m in picture.server.members if m not in ranks and m.role not in ("tracker", "helper")]
    return (*ranks, *rest)


def _worker(picture: Picture, member: Member) -> Worker:
    process = picture.index.by_pid.get(member.pid)
    stack = picture.stack(member.pid, member.pid)
    frame = telling_frame(stack) if stack else None
    target = picture.index.owner(member.pid)
    return Worker(
        pid=member.pid,
        role=member.role,
        rank=msgspec.structs.replace(member.rank, global_=picture.server.global_rank(member.rank))
        if member.ranked
        else member.rank,
        gpu=device.gpu.uuid if (device := picture.devices.get(member.pid)) is not None else None,
        state=_word(picture, member, process),
        where=frame.where if frame else None,
        waits_for=tuple(dict.fromkeys(e.holder for e in picture.edges_from(target))),
    )


def _word(picture: Picture, member: Member, process: Process | None) -> str:
    if process is None or process.state in GONE:
        return "dead"
    if process.state in STOPPED:
        return "stopped"
    target = node.thread(member.pid, member.pid)
    edges = picture.edges_from(target)
    if any(e.wait.kind in ("lock", "file-lock", "gil") for e in edges):
        return "lock"
    if any(e.wait.need == "reply" for e in edges):
        return "waiting"
    if edges or ((known := picture.known(member.pid, member.pid)) is not None and known.need == "work"):
        return "idle"
    motion = picture.motion(member.pid, member.pid)
    if motion is Motion.FROZEN:
        return "asleep"
    return {"moving": "running", "spinning": "busy", "polling": "waiting"}.get(motion.value, "unknown")


def _not_read(picture: Picture) -> tuple[NotRead, ...]:
    """Sources that failed, once each, with how many processes it concerns. What nobody asked for is left out."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for member, process in picture.members():
        if member.role in ("tracker", "helper", "compiler"):
            continue
        for name in _READINGS:
            if (why := _why_not(getattr(process, name))) is not None:
                found.setdefault((name, *why), []).append(process.pid)
    snapshot = picture.observation.last
    whole: dict[str, object] = {
        "sockets": snapshot.sockets,
        "file_locks": snapshot.file_locks,
        "ras": snapshot.ras,
        "xids": snapshot.xids,
        "flight": snapshot.flight,
        "kernels": snapshot.kernels,
        "tokens": snapshot.tokens.get(picture.server.root_pid, NOT_ASKED),
        "gpus": snapshot.gpus,
    }
    for name, reading in whole.items():
        if (why := _why_not(reading)) is not None:
            found.setdefault((name, *why), [])
    for gap in snapshot.gaps:
        found.setdefault((gap.source, gap.reason, gap.help), [])
    return tuple(
        NotRead(source=f"{name} of pid {', '.join(map(str, pids[:SHOWN_PIDS]))}" if pids else name, reason=reason, help=help_)
        for (name, reason, help_), pids in found.items()
    )


def _why_not(reading: object) -> tuple[str, str] | None:
    """Reason and help of a source that failed or refused; None for one that answered or that nobody asked."""
    if isinstance(reading, Unavailable) and reading.reason != NOT_ASKED.reason:
        return reading.reason, reading.help
    return (reading.error, "") if isinstance(reading, Failed) else None
