"""Recorded hangs replay to the verdict they had, abstain where a source is missing, and change when one fact does."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
import pytest

from gpudiag.model.process import Process, Syscall
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation, Snapshot
from gpudiag.session.load import load
from tests.support.diagnosing import SOURCES, Source, describe, judge, without

HERE = Path(__file__).parent
RECORDINGS = sorted([*HERE.glob("hangs/*.gpudiag"), *HERE.glob("servers/*.gpudiag")])
Change = Callable[[Process, int], Process]


def expected(path: Path) -> str | None:
    """The code in the file name; None for a look-alike that must not be an error."""
    code = path.name.partition("-")[0]
    return None if code == "quiet" else code


def read(name: str) -> Observation:
    (path,) = [p for p in RECORDINGS if p.name == f"{name}.gpudiag"]
    return load(path).observation


def altered(observation: Observation, change: Change) -> Observation:
    """The observation with every process passed through `change`, which also gets the number of the look."""
    return Observation(
        snapshots=tuple(
            msgspec.structs.replace(snapshot, processes=tuple(change(p, look) for p in snapshot.processes))
            for look, snapshot in enumerate(observation.snapshots)
        )
    )


def code_of(report: Report) -> str | None:
    return report.verdict.code


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: p.stem)
def test_verdict(path: Path) -> None:
    report = judge(load(path).observation)
    if expected(path) is None:
        assert report.verdict.severity != "error", describe(report)
    else:
        assert report.verdict.code == expected(path), describe(report)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: p.stem)
def test_never_wrong_without_a_source(path: Path, source: Source) -> None:
    report = judge(without(load(path).observation, source))
    right = code_of(report) == expected(path) or report.verdict.status == "insufficient" or report.verdict.severity != "error"
    assert right, f"{source} withheld: {describe(report)}"


@pytest.mark.parametrize("path", [p for p in RECORDINGS if expected(p)], ids=lambda p: p.stem)
def test_one_look_says_nothing_that_needs_two(path: Path) -> None:
    report = judge(without(load(path).observation, "change"))
    for finding in report.findings:
        assert not any(e.source in ("two-looks", "long-look", "cpu-time") for e in finding.evidence), finding.code


def culprit_pid(name: str) -> int:
    pid = judge(read(name)).verdict.culprits[0].pid
    assert pid is not None
    return pid


def moving(pid: int) -> Change:
    """The main thread of one process takes another line and some processor time in every look."""

    def change(process: Process, look: int) -> Process:
        if process.pid != pid or not isinstance(process.stacks, Ok):
            return process
        threads = tuple(
            msgspec.structs.replace(t, run_ns=(t.run_ns or 0) + look * 300_000_000, state="R") if t.tid == pid else t
            for t in process.threads
        )
        stacks = tuple(
            msgspec.structs.replace(s, frames=(msgspec.structs.replace(s.frames[0], line=s.frames[0].line + look), *s.frames[1:]))
            if s.tid == pid and s.frames
            else s
            for s in process.stacks.value
        )
        return msgspec.structs.replace(
            process,
            threads=threads,
            stacks=Ok(value=stacks, at=process.stacks.at),
            syscalls=_without_call(process, pid),
            file_polls=Ok(value=(), at=0.0),
        )

    return change


def _without_call(process: Process, tid: int) -> Ok[dict[int, Syscall]] | Unavailable | Failed:
    if not isinstance(process.syscalls, Ok):
        return process.syscalls
    return Ok(value={t: c for t, c in process.syscalls.value.items() if t != tid}, at=process.syscalls.at)


def running_again(pid: int) -> Change:
    def change(process: Process, _: int) -> Process:
        if process.pid != pid:
            return process
        threads = tuple(msgspec.structs.replace(t, state="S") for t in process.threads)
        return msgspec.structs.replace(process, state="S", threads=threads)

    return change


@pytest.mark.parametrize(
    "name",
    ["GPD301-rank-missing", "GPD301-torch_rank_missing", "GPD322-event_nobody_sets-event", "GPD325-torch_p2p_missing"],
)
def test_a_culprit_that_moves_is_none(name: str) -> None:
    report = judge(altered(read(name), moving(culprit_pid(name))))
    assert report.verdict.severity != "error", describe(report)


@pytest.mark.parametrize("name", ["GPD305-rank-stopped", "GPD305-vllm-stopped", "GPD305-vllm-0.32-worker-starting"])
def test_a_process_that_runs_again_is_not_stopped(name: str) -> None:
    assert code_of(judge(altered(read(name), running_again(culprit_pid(name))))) != "GPD305"


def test_workers_without_a_number_yet_have_all_come() -> None:
    """Until its groups are made, every worker of vLLM has the same title: no rank is missing in the rendezvous."""
    name = "GPD305-vllm-0.32-worker-starting"
    stopped = judge(read(name))
    assert [f.code for f in stopped.findings] == ["GPD305"]
    assert "rank None" not in stopped.verdict.title
    pid = culprit_pid(name)
    assert stopped.verdict.culprits[0].rank is None
    going_on = judge(altered(read(name), running_again(pid)))
    assert going_on.verdict.severity != "error", describe(going_on)


def test_a_lock_file_that_somebody_has_open_is_not_stale() -> None:
    observation = read("GPD307-stale-lock")
    root = observation.last.roots[0]
    last = msgspec.structs.replace(
        observation.last, files=tuple(msgspec.structs.replace(f, openers=(root,)) for f in observation.last.files)
    )
    report = judge(Observation(snapshots=(*observation.snapshots[:-1], last)))
    assert code_of(report) != "GPD307", describe(report)


def test_a_lock_file_that_is_gone_is_waited_for_no_more() -> None:
    observation = read("GPD307-stale-lock")
    last = msgspec.structs.replace(
        observation.last, files=tuple(msgspec.structs.replace(f, exists=False, inode=None) for f in observation.last.files)
    )
    assert code_of(judge(Observation(snapshots=(*observation.snapshots[:-1], last)))) != "GPD307"


def test_the_same_lines_on_other_locks_are_no_cycle() -> None:
    """What a thread holds is moved to other addresses: the text is the same, the locks are not."""

    def elsewhere(process: Process, _: int) -> Process:
        if not isinstance(process.lock_uses, Ok):
            return process
        uses = tuple(
            msgspec.structs.replace(u, lock=u.lock + 0x1000 if u.held else u.lock, owner_ident=None)
            for u in process.lock_uses.value
        )
        return msgspec.structs.replace(process, lock_uses=Ok(value=uses, at=process.lock_uses.at))

    assert code_of(judge(altered(read("GPD306-lock-cycle"), elsewhere))) != "GPD306"


def test_ranks_in_the_same_collective_do_not_mismatch() -> None:
    observation = read("GPD302-torch_mismatched")
    report = judge(observation)
    odd = report.verdict.culprits[0].pid
    other = next(c.pid for c in report.verdict.culprits if c.pid != odd)

    def same(process: Process, look: int) -> Process:
        model = observation.snapshots[look].process(other or 0)
        if process.pid != odd or model is None or not isinstance(process.stacks, Ok):
            return process
        frames = next(s.frames for s in model.stacks.value if s.tid == other) if isinstance(model.stacks, Ok) else ()
        stacks = tuple(msgspec.structs.replace(s, frames=frames) if s.tid == odd else s for s in process.stacks.value)
        return msgspec.structs.replace(process, stacks=Ok(value=stacks, at=process.stacks.at))

    assert code_of(judge(altered(observation, same))) not in ("GPD302", "GPD327")


def test_a_dead_rank_that_lives_is_not_dead() -> None:
    observation = read("GPD304-rank-dead")
    report = judge(observation)
    gap = report.verdict.culprits[0].rank
    assert report.target is not None
    twin = next(w for w in report.target.workers if w.role == "worker" and w.rank.global_ != gap)

    def revived(processes: tuple[Process, ...]) -> tuple[Process, ...]:
        model = next(p for p in processes if p.pid == twin.pid)
        assert isinstance(model.cmdline, Ok)
        title = model.cmdline.value[0].replace(f"TP{twin.rank.tp}", f"TP{gap}")
        cmdline = Ok(value=(title, *model.cmdline.value[1:]), at=0.0)
        return (*processes, msgspec.structs.replace(model, pid=999_999, cmdline=cmdline, threads=()))

    snapshots = tuple(msgspec.structs.replace(s, processes=revived(s.processes)) for s in observation.snapshots)
    assert code_of(judge(Observation(snapshots=snapshots))) != "GPD304"


MOVES = sorted(
    p.stem
    for p in RECORDINGS
    if (expected(p) or "GPD304")[3:]
    in {"301", "302", "306", "307", "308", "309", "312", "313", "319", "320", "322", "323", "325", "326", "327", "328"}
)


@pytest.mark.parametrize("name", MOVES)
def test_the_verdict_changes_when_every_culprit_moves(name: str) -> None:
    """The twin of a hang: the same processes, and the named threads take other lines and processor time."""
    observation = read(name)
    before = judge(observation).verdict
    for culprit in before.culprits:
        assert culprit.pid is not None
        observation = altered(observation, moving_thread(culprit.pid, culprit.tid or culprit.pid))
    after = judge(observation).verdict
    assert (after.code, after.culprits[:1]) != (before.code, before.culprits[:1]), describe(judge(observation))


def moving_thread(pid: int, tid: int) -> Change:
    """One thread takes another line and some processor time in every look, and sleeps in no call."""

    def change(process: Process, look: int) -> Process:
        if process.pid != pid:
            return process
        threads = tuple(
            msgspec.structs.replace(t, run_ns=(t.run_ns or 0) + look * 300_000_000, state="R") if t.tid == tid else t
            for t in process.threads
        )
        process = msgspec.structs.replace(process, threads=threads, syscalls=_without_call(process, tid))
        if not isinstance(process.stacks, Ok):
            return process
        stacks = tuple(
            msgspec.structs.replace(
                s, owns_gil=False, frames=(msgspec.structs.replace(s.frames[0], line=s.frames[0].line + look), *s.frames[1:])
            )
            if s.tid == tid and s.frames
            else s
            for s in process.stacks.value
        )
        return msgspec.structs.replace(process, stacks=Ok(value=stacks, at=process.stacks.at))

    return change


def test_a_compiler_that_sleeps_is_not_at_work() -> None:
    observation = read("GPD314-slow-compile")
    pid = culprit_pid("GPD314-slow-compile")
    first = observation.first.process(pid)
    assert first is not None

    def asleep(process: Process, _: int) -> Process:
        return (
            msgspec.structs.replace(first, state="S", threads=tuple(msgspec.structs.replace(t, state="S") for t in first.threads))
            if process.pid == pid
            else process
        )

    assert code_of(judge(altered(observation, asleep))) != "GPD314"


@pytest.mark.parametrize("name", ["GPD318-idle", "GPD318-vllm-idle", "GPD318-sglang-idle"])
def test_a_server_that_owes_an_answer_is_not_idle(name: str) -> None:
    observation = read(name)
    assert code_of(judge(asked(observation, in_looks=range(len(observation.snapshots))))) != "GPD318"


def test_a_server_that_answered_between_the_looks_is_not_idle() -> None:
    """Clients that open a connection for each request leave nothing behind in the last look."""
    observation = read("GPD318-sglang-idle")
    assert code_of(judge(asked(observation, in_looks=[]))) == "GPD318"
    assert code_of(judge(asked(observation, in_looks=[0]))) is None


def asked(observation: Observation, *, in_looks: Collection[int]) -> Observation:
    """In these looks a client has sent something 40 s before and got nothing back."""
    assert isinstance(observation.last.sockets, Ok)
    listening = next(
        s
        for s in observation.last.sockets.value
        if s.state == "LISTEN" and s.inode in _owned(observation, observation.last.roots[0])
    )
    client = msgspec.structs.replace(
        listening,
        inode=99_999_999,
        state="ESTABLISHED",
        remote="127.0.0.1:9",
        last_received_ms=40_000,
        last_sent_ms=50_000,
        bytes_received=99,
        bytes_sent=1,
    )

    def accepted(process: Process, look: int) -> Process:
        if look not in in_looks or process.pid != observation.last.roots[0] or not isinstance(process.fds, Ok):
            return process
        fd = msgspec.structs.replace(
            process.fds.value[0], fd=999, kind="socket", inode=client.inode, target=f"socket:[{client.inode}]"
        )
        return msgspec.structs.replace(process, fds=Ok(value=(*process.fds.value, fd), at=process.fds.at))

    def with_client(snapshot: Snapshot, look: int) -> Snapshot:
        if look not in in_looks:
            return snapshot
        assert isinstance(snapshot.sockets, Ok)
        return msgspec.structs.replace(snapshot, sockets=Ok(value=(*snapshot.sockets.value, client), at=snapshot.sockets.at))

    pending = altered(observation, accepted)
    return Observation(snapshots=tuple(with_client(s, n) for n, s in enumerate(pending.snapshots)))


@pytest.mark.parametrize("name", ["quiet-sglang-cache-locked", "quiet-sglang-builds"])
def test_a_first_request_that_waits_for_a_kernel_is_no_livelock_and_the_server_not_healthy(name: str) -> None:
    """SGLang 0.5.17: a rank polls for the lock of a cache, or for ninja, and no compiler is seen in two looks."""
    report = judge(read(name))
    assert (report.verdict.status, report.verdict.code) == ("insufficient", None), describe(report)
    assert "rank 0 builds a kernel, or waits until another process has" in report.verdict.title
    assert report.target is not None
    assert report.target.state == "slow"


def _owned(observation: Observation, pid: int) -> set[int | None]:
    process = observation.last.process(pid)
    assert process is not None
    assert isinstance(process.fds, Ok)
    return {fd.inode for fd in process.fds.value}


def test_an_answer_that_takes_long_is_no_livelock_where_the_server_counts_its_tokens() -> None:
    seen = read("quiet-long_answer")
    report = judge(seen)
    assert report.target is not None
    assert (report.verdict.status, report.target.state) == ("insufficient", "serving")
    assert "by its own counters" in report.verdict.title
    silent = Observation(snapshots=(*seen.snapshots[:-1], msgspec.structs.replace(seen.last, tokens={})))
    assert code_of(judge(silent)) == "GPD321"
