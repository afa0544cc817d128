"""Rules about hardware and fabric: each fires on a recording with one fact changed, and is quiet on the recording as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpudiag.model.communicator import Communicator, RasCommunicator
from gpudiag.model.gpu import Fabric, Gpu, GpuInventory, Memory, NvLink, PcieLink, XidEvent
from gpudiag.model.reading import Failed, Ok
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation, Snapshot
from tests.gpu.test_replay import RECORDINGS, judged, observation

BASE = "missing_rank"
HARDWARE = {f"GPD{n}" for n in (401, 404, 405, 406, 501, 502, 503, 504, 505, 506, 507, 508)}

Change = Callable[[Snapshot], Snapshot]


def gpu1(**facts: object) -> Change:
    """The second GPU, which the missing rank uses, with other facts."""

    def change(snapshot: Snapshot) -> Snapshot:
        assert isinstance(snapshot.gpus, Ok)
        gpus = tuple(replace(g, **facts) if g.index == 1 else g for g in snapshot.gpus.value.gpus)
        return replace(snapshot, gpus=replace(snapshot.gpus, value=replace(snapshot.gpus.value, gpus=gpus)))

    return change


def changed(change: Change) -> Observation:
    seen = observation(RECORDINGS / "h200x2" / f"{BASE}.gpudiag")
    return Observation(snapshots=tuple(change(s) for s in seen.snapshots))


def codes(report: Report) -> set[str]:
    return {f.code for f in report.findings}


def pci_of_gpu1(snapshot: Snapshot) -> str:
    assert isinstance(snapshot.gpus, Ok)
    return next(g.pci for g in snapshot.gpus.value.gpus if g.index == 1)


def xid(number: int, ago_s: float) -> Change:
    def change(snapshot: Snapshot) -> Snapshot:
        event = XidEvent(number=number, pci=pci_of_gpu1(snapshot), text=f"NVRM: Xid {number}", at_s=snapshot.monotonic_s - ago_s)
        return replace(snapshot, xids=Ok(value=(event,), at=snapshot.at))

    return change


def lost(snapshot: Snapshot) -> Snapshot:
    assert isinstance(snapshot.gpus, Ok)
    inventory: GpuInventory = replace(snapshot.gpus.value, gpus=snapshot.gpus.value.gpus[:1], lost={1: "GPU is lost"})
    return replace(snapshot, gpus=replace(snapshot.gpus, value=inventory))


def silent(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, gpus=Failed(error="deadline: the driver did not answer within 5 s: gpm of GPU 1"))


def strange_ras(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, ras=Ok(value=(RasCommunicator(hash="0x1", size=2, pids={0: 1, 1: 2}),), at=snapshot.at))


def stalled(snapshot: Snapshot) -> Snapshot:
    def processes() -> object:
        for process in snapshot.processes:
            if not isinstance(process.nccl, Ok):
                yield process
                continue
            found = tuple(replace(n, communicators=tuple(map(starting, n.communicators))) for n in process.nccl.value)
            yield replace(process, nccl=replace(process.nccl, value=found))

    def starting(communicator: Communicator) -> Communicator:
        return replace(communicator, init_state=7, launched=(0, 0, 0, 0, 0))

    return replace(snapshot, processes=tuple(processes()))  # type: ignore[arg-type]


CASES: dict[str, tuple[str, Change]] = {
    "Xid after the start": ("GPD501", xid(48, 1.0)),
    "uncorrectable ECC": ("GPD502", gpu1(memory=Memory(ecc_uncorrected_volatile=3))),
    "row waits for a reset": ("GPD503", gpu1(memory=Memory(remap_pending=True))),
    "row could not be replaced": ("GPD503", gpu1(memory=Memory(remap_failed=True))),
    "half the lanes": ("GPD504", gpu1(pcie=PcieLink(width=8, width_max=16))),
    "too hot": ("GPD505", gpu1(event_reasons=("hw-thermal-slowdown",))),
    "reset asked for": ("GPD506", gpu1(recovery_action="gpu-reset")),
    "lost": ("GPD506", lost),
    "busy without process": ("GPD507", gpu1(processes=(), utilisation_percent=100)),
    "driver silent": ("GPD508", silent),
    "links down": ("GPD404", gpu1(nvlink=NvLink(links_up=16, links_down=(3, 7)))),
    "fabric failed": ("GPD405", gpu1(fabric=Fabric(state="completed", status=1))),
    "fabric not ready": ("GPD405", gpu1(fabric=Fabric(state="in progress"))),
    "another job's service": ("GPD406", strange_ras),
    "set-up does not end": ("GPD401", stalled),
}

QUIET: dict[str, Change] = {
    "as recorded": lambda snapshot: snapshot,
    "Xid of long ago": xid(48, 100_000.0),
    "Xid of a program": xid(31, 1.0),
    "at the power limit": gpu1(event_reasons=("sw-power-cap", "gpu-idle")),
    "link speed lowered to save power": gpu1(pcie=PcieLink(generation=1, generation_max=5, width=16, width_max=16)),
    "no fabric": gpu1(fabric=Fabric(state="not started")),
    "no NVLink": gpu1(nvlink=None),
    "nothing known": gpu1(memory=None, pcie=None, fabric=None, recovery_action=None, event_reasons=None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_fires(name: str) -> None:
    code, change = CASES[name]
    report = judged(changed(change))
    assert codes(report) & HARDWARE == {code}
    finding = next(f for f in report.findings if f.code == code)
    assert finding.evidence
    assert finding.next_steps


@pytest.mark.parametrize("name", QUIET)
def test_no_rule_fires(name: str) -> None:
    assert codes(judged(changed(QUIET[name]))) & HARDWARE == set()


def test_failing_hardware_of_the_culprit_is_the_verdict() -> None:
    """A warning is not: the rank that stays away is the cause, whatever the state of its fans."""
    assert judged(changed(CASES["uncorrectable ECC"][1])).verdict.code == "GPD502"
    assert judged(changed(CASES["too hot"][1])).verdict.code == "GPD301"


@pytest.mark.parametrize("path", sorted((RECORDINGS / "h200x2").glob("*.gpudiag")), ids=lambda p: p.stem)
def test_healthy_machines_have_no_hardware_findings(path: object) -> None:
    from pathlib import Path

    assert isinstance(path, Path)
    assert codes(judged(observation(path))) & HARDWARE == set()


def test_gpus_are_found_by_either_witness() -> None:
    """In a container the driver may list pids of the host: then the device number that NCCL kept names the GPU."""

    def foreign(snapshot: Snapshot) -> Snapshot:
        assert isinstance(snapshot.gpus, Ok)
        strangers = tuple(
            replace(g, processes=tuple(replace(p, pid=p.pid + 100_000) for p in g.processes)) for g in snapshot.gpus.value.gpus
        )
        return replace(snapshot, gpus=replace(snapshot.gpus, value=replace(snapshot.gpus.value, gpus=strangers)))

    expected, report = judged(changed(lambda s: s)), judged(changed(foreign))
    assert expected.target is not None
    assert report.target is not None
    assert [w.gpu for w in report.target.workers] == [w.gpu for w in expected.target.workers]
    assert report.verdict.code == "GPD301"


def test_two_witnesses_that_contradict_each_other_prove_nothing() -> None:
    def swapped(snapshot: Snapshot) -> Snapshot:
        assert isinstance(snapshot.gpus, Ok)
        one, other = snapshot.gpus.value.gpus
        gpus: tuple[Gpu, ...] = (replace(one, processes=other.processes), replace(other, processes=one.processes))
        return replace(snapshot, gpus=replace(snapshot.gpus, value=replace(snapshot.gpus.value, gpus=gpus)))

    report = judged(changed(swapped))
    assert report.target is not None
    assert [w.gpu for w in report.target.workers if w.rank.global_ is not None] == [None, None]
