"""What a dump changes about a verdict: recordings of two H200s, with what cuda-gdb said about the same hang there."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudiag.model.kernel import KernelDump
from gpudiag.model.reading import Ok
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation
from gpudiag.render.text import text
from gpudiag.session.load import load
from gpudiag.session.pipeline import reports_of, servers_of
from tests.kernel_dump.recorded import dump

RECORDINGS = Path(__file__).parents[1] / "recordings" / "gpu" / "h200x2"


def observation(name: str) -> Observation:
    return load(RECORDINGS / f"{name}.gpudiag").observation


def pids(seen: Observation) -> list[int]:
    (server,) = servers_of(seen)
    return [m.pid for m in sorted(server.ranks, key=lambda m: server.global_rank(m.rank) or 0)]


def judged(seen: Observation, *dumps: KernelDump) -> Report:
    last = replace(seen.last, kernels=Ok(value=dumps, at=seen.last.at)) if dumps else seen.last
    (report,) = reports_of(Observation(snapshots=(*seen.snapshots[:-1], last)), command="explain")
    return report


def test_equal_counts_and_a_stuck_kernel() -> None:
    """Without the dump it is 311 with candidates; with it the kernel, its line, and the rank that waits for it."""
    seen = observation("stuck_kernel")
    first, second = pids(seen)
    assert judged(seen).verdict.code == "GPD311"
    report = judged(seen, dump(first, "stuck_kernel", 0), dump(second, "stuck_kernel", 1))
    (culprit,) = report.verdict.culprits
    assert (report.verdict.code, culprit.rank, culprit.pid) == ("GPD310", 1, second)
    assert (culprit.kernel, culprit.file, culprit.line) == ("wait_for_flag", "/tmp/sk0.py", 7)
    assert report.verdict.title.startswith("kernel wait_for_flag at /tmp/sk0.py:7 on GPU 1 (rank 1) does not end")
    assert report.verdict.confidence == "weak", "two looks a second apart"
    assert {f.code for f in report.findings} == {"GPD310"}
    assert any(w.kind == "collective" and w.holder.endswith("/kernel") for w in report.waits)
    assert report.findings[0].next_steps[-1] == "restart the server: the dump has ended ranks of it"
    drawn = text(report)
    assert "kernel  wait_for_flag" in drawn
    assert "/tmp/sk0.py:7" in drawn
    assert "waits for the GPU of rank 1" in drawn


def test_a_dump_of_the_stuck_rank_alone_is_enough() -> None:
    seen = observation("stuck_kernel")
    report = judged(seen, dump(pids(seen)[1], "stuck_kernel", 1))
    assert [(c.rank, c.kernel) for c in report.verdict.culprits] == [(1, "wait_for_flag")]


def test_collectives_alone_are_no_stuck_kernel() -> None:
    """The same hang, but both dumps show NCCL's kernel: what the ranks wait for is not on the GPUs."""
    seen = observation("stuck_kernel")
    first, second = pids(seen)
    report = judged(seen, dump(first, "stuck_kernel", 0), dump(second, "stuck_kernel", 0))
    assert report.verdict.code == "GPD311"
    (found,) = report.findings
    assert sum(e.source == "device-dump" for e in found.evidence) == 2
    assert "--kernel-dump" not in " ".join(found.next_steps)


@pytest.mark.parametrize("kernel", ["cross_device_reduce_1stage<__nv_bfloat16, 2>", "allreduce_fusion_kernel_oneshot_lamport"])
def test_a_collective_that_is_not_nccl_s_is_none_either(kernel: str) -> None:
    seen = observation("stuck_kernel")
    first, second = pids(seen)
    other = dump(second, "stuck_kernel", 1)
    renamed = replace(other, kernels=(replace(other.kernels[0], name=kernel),))
    assert judged(seen, dump(first, "stuck_kernel", 0), renamed).verdict.code == "GPD311"


def test_a_missing_rank_stays_the_culprit() -> None:
    """Rank 0 was found in its all-reduce, and nothing was resident on the GPU of rank 1, which sleeps."""
    seen = observation("missing_rank")
    first, second = pids(seen)
    report = judged(seen, dump(first, "missing_rank", 0), dump(second, "missing_rank", 1))
    assert (report.verdict.code, [c.rank for c in report.verdict.culprits]) == ("GPD301", [1])


def test_opposite_orders_stay_a_cycle() -> None:
    seen = observation("cross_order")
    first, second = pids(seen)
    report = judged(seen, dump(first, "two_comms", 0), dump(second, "two_comms", 1))
    assert report.verdict.code == "GPD303"


def test_counts_that_differ_and_a_named_kernel() -> None:
    """other_kernel: rank 1 has not launched the collective, and its own kernel is named by the dump."""
    seen = observation("other_kernel")
    first, second = pids(seen)
    unnamed = judged(seen).verdict
    assert (unnamed.code, unnamed.culprits[0].kernel) == ("GPD310", None)
    verdict = judged(seen, dump(first, "missing_rank", 0), dump(second, "stuck_kernel", 1)).verdict
    assert (verdict.code, verdict.culprits[0].rank, verdict.culprits[0].kernel) == ("GPD310", 1, "wait_for_flag")


@pytest.mark.parametrize("name", ["busy", "host_sleep", "idle"])
def test_healthy_servers_are_not_judged_by_a_kernel_that_happened_to_run(name: str) -> None:
    seen = observation(name)
    first, second = pids(seen)
    report = judged(seen, dump(first, "stuck_kernel", 1), dump(second, "stuck_kernel", 1))
    assert report.verdict.code == judged(seen).verdict.code
    assert "GPD310" not in {f.code for f in report.findings}


def test_unarmed_the_next_step_says_how_to_arm() -> None:
    step = judged(observation("stuck_kernel")).verdict.next_step
    assert "gpudiag launch --arm-kernel-dump" in step


def test_armed_the_next_step_is_the_dump() -> None:
    seen = observation("stuck_kernel")
    pid = pids(seen)[0]
    process = seen.last.process(pid)
    assert process is not None
    armed = replace(process, environ=Ok(value={"CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1"}, at=1.0))
    last = replace(seen.last, processes=tuple(armed if p.pid == pid else p for p in seen.last.processes))
    step = judged(Observation(snapshots=(seen.first, last))).verdict.next_step
    assert "--kernel-dump" in step
    assert "ends the server" in step
