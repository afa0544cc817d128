"""Recordings of real hangs on two H200s, judged again: the verdicts that were right on the machine stay right.

h200x2: this suite's own scenarios (tests/gpu/test_scenarios.py), recorded by `gpudiag attach --record`, two looks each, those
named -confirmed three. h200x2_armed: ranks asked for their flight recorder; h200x2_dumped: armed ranks, with `--kernel-dump`.
h200x2_sglang: SGLang 0.5.17 --tp 2 with EAGLE-3 (tests/gpu/serve.py), attached to while it ran; launched_: what the supervisor of
`gpudiag launch` recorded by itself (tests/gpu/launch.py). converted: earlier evidence of
the same machine in another form, with one look at /proc and two at NCCL where both were kept; what was read once is in the last
look only, so 'insufficient' is a right answer there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpudiag.collect.gpu_look import without_counters
from gpudiag.model.metrics import TokenCounts
from gpudiag.model.process import Process
from gpudiag.model.reading import NOT_ASKED, Ok, Unavailable
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation, Snapshot
from gpudiag.rules.log_verdict import explain_log
from gpudiag.session import tokens
from gpudiag.session.load import load
from gpudiag.session.pipeline import reports_of, servers_of
from tests.gpu.test_scenarios import EXPECTED

RECORDINGS = Path(__file__).parents[1] / "recordings" / "gpu"
OWN = sorted((RECORDINGS / "h200x2").glob("*.gpudiag"))
CONVERTED: dict[str, tuple[str | None, str, set[int]]] = {
    "idle": (None, "insufficient", set()),
    "compute": (None, "insufficient", set()),
    "missing_rank": (None, "insufficient", set()),
    "mismatch_op": ("GPD302", "finding", {0, 1}),
    "mismatch_size": (None, "insufficient", set()),
    "killed": ("GPD304", "finding", {1}),
    "stopped": ("GPD305", "finding", {1}),
    "lockfile": (None, "insufficient", set()),
    "pylock": (None, "insufficient", set()),
    "init_missing": (None, "insufficient", set()),
    "gpu_spin": ("GPD310", "finding", {1}),
    "armed_missing_rank": (None, "insufficient", set()),
    "armed_graph_missing": (None, "insufficient", set()),
    "armed_stuck_kernel": ("GPD311", "finding", {0, 1}),
    "armed_two_comms": ("GPD303", "finding", {0, 1}),
    "sglang_idle": ("GPD318", "finding", set()),
    "sglang_busy": (None, "healthy", set()),
    "sglang_stopped_tp1": ("GPD305", "finding", {1}),
    "vllm_idle": ("GPD318", "finding", set()),
    "vllm_busy": ("GPD318", "finding", set()),
    "vllm_stopped_tp1": ("GPD305", "finding", {1}),
}
WITHHELD = Unavailable(reason="withheld", help="")


DUMPED: dict[str, tuple[str, str | None, int | None]] = {
    "stuck_kernel": ("GPD310", "wait_for_flag", 9),
    "other_kernel": ("GPD310", "at::cuda::(anonymous namespace)::spin_kernel", None),
    "missing_rank": ("GPD301", None, None),
}
"""Code, kernel, and line of its source; the culprit is rank 1."""
SGLANG: dict[str, tuple[str | None, str, str, set[int]]] = {
    "starting": (None, "insufficient", "starting", set()),
    "serving": (None, "healthy", "serving", set()),
    "idle": ("GPD318", "finding", "idle", set()),
    "stopped": ("GPD305", "finding", "hung", {1}),
    "killed": ("GPD304", "finding", "hung", {1}),
}
"""Code, status, state of the server, culprits."""


def observation(path: Path) -> Observation:
    return load(path).observation


def judged(seen: Observation) -> Report:
    (report,) = reports_of(seen, command="explain")
    return report


def is_right(report: Report, scenario: str) -> bool:
    codes, ranks = EXPECTED[scenario]
    return report.verdict.code in codes and (not ranks or ranks <= {c.rank for c in report.verdict.culprits})


def each(seen: Observation, change: object) -> Observation:
    assert callable(change)
    return Observation(snapshots=tuple(change(s) for s in seen.snapshots))


def no_counters(snapshot: Snapshot) -> Snapshot:
    if not isinstance(snapshot.gpus, Ok):
        return snapshot
    gpus = tuple(map(without_counters, snapshot.gpus.value.gpus))
    return replace(snapshot, gpus=replace(snapshot.gpus, value=replace(snapshot.gpus.value, gpus=gpus)))


def no_gpus(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, gpus=WITHHELD, xids=NOT_ASKED)


def no_nccl(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, processes=tuple(replace(p, nccl=WITHHELD) for p in snapshot.processes))


def neither(snapshot: Snapshot) -> Snapshot:
    return no_nccl(no_gpus(snapshot))


def no_stacks(snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        processes=tuple(replace(p, stacks=WITHHELD, lock_uses=WITHHELD, file_polls=WITHHELD) for p in snapshot.processes),
    )


@pytest.mark.parametrize("path", OWN, ids=lambda p: p.stem)
def test_own_recordings(path: Path) -> None:
    report = judged(observation(path))
    assert is_right(report, path.stem.partition("-")[0]), report.verdict
    assert report.cost.stopped_s == 0


@pytest.mark.parametrize(
    ("name", "code", "culprits"),
    [
        ("missing_rank", "GPD301", {1}),
        ("other_operation", "GPD302", {0, 1}),
        ("other_size", "GPD302", {0, 1}),
        ("cross_order", "GPD303", {0, 1}),
        ("send_without_recv", "GPD325", {0, 1}),
        ("busy", None, set()),
        ("idle", None, set()),
    ],
)
def test_ranks_asked_for_their_flight_recorder(name: str, code: str | None, culprits: set[int]) -> None:
    """Two H200s, torch 2.11, NCCL 2.28.9: each rank answered through its pipe while it hung."""
    report = judged(observation(RECORDINGS / "h200x2_armed" / f"{name}.gpudiag"))
    assert report.verdict.code == code, report.verdict.title
    assert {c.rank for c in report.verdict.culprits} == culprits


@pytest.mark.parametrize("name", sorted(DUMPED))
def test_ranks_that_wrote_a_cuda_core_dump(name: str) -> None:
    """Two H200s, driver 580, cuda-gdb 13.0: three looks, then the dumps; a rank with a kernel on its GPU was aborted."""
    code, kernel, line = DUMPED[name]
    seen = observation(RECORDINGS / "h200x2_dumped" / f"{name}.gpudiag")
    verdict = judged(seen).verdict
    assert (verdict.code, [c.rank for c in verdict.culprits], verdict.confidence) == (code, [1], "strong"), verdict.title
    (culprit,) = verdict.culprits
    assert culprit.kernel == kernel
    assert line is None or culprit.line == line
    assert isinstance(seen.last.kernels, Ok)
    assert all(d.ended == bool(d.kernels) and 0.5 < d.wrote_s < 5 for d in seen.last.kernels.value)


@pytest.mark.parametrize("name", sorted(DUMPED))
def test_without_the_dump_no_kernel_is_named(name: str) -> None:
    seen = observation(RECORDINGS / "h200x2_dumped" / f"{name}.gpudiag")
    verdict = judged(each(seen, lambda s: replace(s, kernels=NOT_ASKED))).verdict
    assert verdict.code == {"stuck_kernel": "GPD311"}.get(name, DUMPED[name][0])
    assert all(c.kernel is None for c in verdict.culprits)


@pytest.mark.parametrize("name", sorted(SGLANG))
def test_a_real_sglang_that_was_attached_to(name: str) -> None:
    code, status, state, ranks = SGLANG[name]
    report = judged(observation(RECORDINGS / "h200x2_sglang" / f"{name}.gpudiag"))
    assert report.target is not None
    assert (report.verdict.code, report.verdict.status, report.target.state) == (code, status, state), report.verdict.title
    assert {c.rank for c in report.verdict.culprits} == ranks
    assert report.cost.stopped_s == 0


def test_a_dead_rank_that_the_log_tells_of_too_is_named_once() -> None:
    recording = load(RECORDINGS / "h200x2_sglang" / "killed.gpudiag")
    (report,) = reports_of(recording.observation, command="explain", logs=recording.logs)
    assert [f.code for f in report.findings] == ["GPD304"]
    (alone,) = recording.logs
    assert alone.facts is not None
    assert [(f.code, f.subjects) for f in explain_log(alone.facts, version="", generated_at="").findings] == [
        ("GPD304", ("rank:global:1",))
    ]


@pytest.mark.parametrize("change", [no_counters, no_gpus, no_nccl, neither, no_stacks])
@pytest.mark.parametrize("name", [*(f"h200x2_dumped/{n}" for n in DUMPED), *(f"h200x2_sglang/{n}" for n in SGLANG)])
def test_what_came_later_with_evidence_withheld(name: str, change: object) -> None:
    folder, _, scenario = name.partition("/")
    verdict = judged(each(observation(RECORDINGS / f"{name}.gpudiag"), change)).verdict
    code = DUMPED[scenario][0] if folder.endswith("dumped") else SGLANG[scenario][0]
    assert verdict.code == code or verdict.status == "insufficient" or verdict.code in _WEAKER.get(scenario, ()), verdict


_WEAKER = {"stuck_kernel": ("GPD311",), "starting": ("GPD314", "GPD315", "GPD316")}


def test_every_scenario_has_a_recording() -> None:
    assert {p.stem for p in OWN if "-" not in p.stem} == EXPECTED.keys()


@pytest.mark.parametrize("path", [p for p in OWN if p.stem.endswith("-confirmed")], ids=lambda p: p.stem)
def test_a_third_look_makes_the_verdict_firmer(path: Path) -> None:
    earlier = path.with_stem(path.stem.removesuffix("-confirmed"))
    assert judged(observation(path)).verdict.confidence == "strong"
    assert judged(observation(earlier)).verdict.confidence == "weak"


@pytest.mark.parametrize("path", OWN, ids=lambda p: p.stem)
@pytest.mark.parametrize("change", [no_counters, no_gpus, no_nccl, neither, no_stacks])
def test_with_evidence_withheld_the_answer_is_right_or_none(path: Path, change: object) -> None:
    scenario = path.stem.partition("-")[0]
    report = judged(each(observation(path), change))
    verdict = report.verdict
    assert is_right(report, scenario) or verdict.status == "insufficient" or verdict.code == "GPD109", verdict


@pytest.mark.parametrize("name", sorted(CONVERTED))
def test_converted_recordings(name: str) -> None:
    code, status, ranks = CONVERTED[name]
    verdict = judged(observation(RECORDINGS / "converted" / f"{name}.gpudiag")).verdict
    assert (verdict.code, verdict.status) == (code, status), verdict.title
    assert ranks <= {c.rank for c in verdict.culprits}


def test_ranks_on_another_host_may_be_the_ones_that_stay_away() -> None:
    def wider(snapshot: Snapshot) -> Snapshot:
        """The same two ranks, in communicators that have two more somewhere else."""

        def widened(process: Process) -> Process:
            if not isinstance(process.nccl, Ok):
                return process
            found = tuple(
                replace(n, communicators=tuple(replace(c, size=4) for c in n.communicators)) for n in process.nccl.value
            )
            return replace(process, nccl=replace(process.nccl, value=found))

        return replace(snapshot, processes=tuple(map(widened, snapshot.processes)))

    seen = observation(RECORDINGS / "h200x2" / "stuck_kernel.gpudiag")
    assert judged(seen).verdict.code == "GPD311"
    assert judged(each(seen, wider)).verdict.status == "insufficient"


def test_the_report_names_gpus_and_counts() -> None:
    report = judged(observation(RECORDINGS / "h200x2" / "missing_rank.gpudiag"))
    assert report.target is not None
    ranks = [w for w in report.target.workers if w.rank.global_ is not None]
    assert all(w.gpu and w.gpu.startswith("GPU-") for w in ranks)
    claims = [e.claim for f in report.findings for e in f.evidence]
    assert any("launched AllReduce up to number 21" in claim and "up to 20" in claim for claim in claims)
    assert msgspec.json.encode(report)


def test_what_a_dead_rank_left_and_then_ended_does_not_cost_the_report() -> None:
    """`gpudiag launch` looked while a compile worker, orphaned by the kill, was on its way out."""
    recording = load(RECORDINGS / "h200x2_sglang" / "launched_killed.gpudiag")
    (report,) = reports_of(recording.observation, command="explain", logs=recording.logs)
    assert (report.verdict.code, [c.rank for c in report.verdict.culprits]) == ("GPD210", [1])


def test_a_first_request_that_waits_for_a_compiler() -> None:
    """The canary of `gpudiag launch`, 8 s old: ninja builds a kernel below rank 1, and rank 0 waits for its lock."""
    report = judged(observation(RECORDINGS / "h200x2_sglang" / "launched_compiling.gpudiag"))
    assert report.target is not None
    assert (report.verdict.code, report.target.state) == ("GPD314", "slow")


def unanswered_for(snapshot: Snapshot, age_ms: int) -> Snapshot:
    """As if every request had come long ago and no byte had gone out since: an answer that is not streamed."""
    assert isinstance(snapshot.sockets, Ok)
    sockets = [
        replace(s, bytes_sent=0, bytes_received=400, last_received_ms=age_ms, last_sent_ms=age_ms + 5) if s.family == "tcp" else s
        for s in snapshot.sockets.value
    ]
    return replace(snapshot, sockets=replace(snapshot.sockets, value=tuple(sockets)))


def test_ranks_that_launch_collectives_are_no_livelock() -> None:
    seen = observation(RECORDINGS / "h200x2_sglang" / "serving_confirmed.gpudiag")
    long = Observation(snapshots=tuple(unanswered_for(s, 45_000) for s in seen.snapshots))
    assert [f.code for f in judged(long).findings if f.code == "GPD321"] == []
    blind = each(long, no_nccl)
    assert [f.code for f in judged(blind).findings if f.code == "GPD321"] == ["GPD321"]


def unstreamed() -> Observation:
    """A server that serves, without what would show it: no bytes to a client yet, and NCCL counts that nobody could read."""
    seen = observation(RECORDINGS / "h200x2_sglang" / "serving_confirmed.gpudiag")
    return each(Observation(snapshots=tuple(unanswered_for(s, 45_000) for s in seen.snapshots)), no_nccl)


def counted(seen: Observation, reading: Ok[TokenCounts] | Unavailable) -> Observation:
    (server,) = servers_of(seen)
    return Observation(snapshots=(*seen.snapshots[:-1], replace(seen.last, tokens={server.root_pid: reading})))


def test_a_server_that_says_it_generates_tokens_is_no_livelock() -> None:
    moved = Ok(value=TokenCounts(before=1000, after=1040, over_s=1.0), at=0.0)
    report = judged(counted(unstreamed(), moved))
    assert "GPD321" not in [f.code for f in report.findings]
    assert report.verdict.status == "healthy"


def test_counters_that_stand_still_are_evidence_and_the_guess_stays_weak() -> None:
    still = Ok(value=TokenCounts(before=1000, after=1000, over_s=6.0), at=0.0)
    (finding,) = (f for f in judged(counted(unstreamed(), still)).findings if f.code == "GPD321")
    assert finding.confidence == "weak"
    assert "stood still at 1000 tokens for 6 s" in " ".join(e.claim for e in finding.evidence)
    assert not any("look at the token counters" in step for step in finding.next_steps)


def test_a_server_that_would_not_say_changes_nothing_but_is_named() -> None:
    silent = Unavailable(reason="/metrics answers with status 404", help="SGLang has metrics with --enable-metrics")
    report = judged(counted(unstreamed(), silent))
    assert "GPD321" in [f.code for f in report.findings]
    assert [n.reason for n in report.not_read if n.source == "tokens"] == [silent.reason]


def test_only_where_a_livelock_is_guessed_is_the_server_asked_where_its_oldest_client_came_in() -> None:
    seen = unstreamed()
    servers = servers_of(seen)
    (door,) = tokens.doors(seen, servers, [judged(seen)])
    assert door.root_pid == servers[0].root_pid
    assert isinstance(seen.last.sockets, Ok)
    assert door.address in {s.local for s in seen.last.sockets.value if s.state == "ESTABLISHED"}
    quiet = observation(RECORDINGS / "h200x2_sglang" / "serving_confirmed.gpudiag")
    assert list(tokens.doors(quiet, servers_of(quiet), [judged(quiet)])) == []
