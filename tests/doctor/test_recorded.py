"""Every check on what doctor --active read of a real machine: two H200s, Linux guest, torch 2.11 for CUDA 13.0, no engine."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpudiag.model.doctor import CheckResult
from gpudiag.model.facts import Facts, Gpu, GpuSet, GpuTest
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight import judge, registry

RECORDING = Path(__file__).parent / "recordings" / "two-h200.json.gz"


@pytest.fixture(scope="module")
def recorded() -> Facts:
    return msgspec.json.decode(gzip.decompress(RECORDING.read_bytes()), type=Facts)


def results(given: Facts) -> dict[str, CheckResult]:
    return {r.info.code: r for r in judge.judge(given, registry.CHECKS)}


def found(given: Facts) -> set[str]:
    return {code for code, r in results(given).items() if r.status == "finding"}


def with_gpu(given: Facts, **changes: object) -> Facts:
    """The second GPU changed."""
    gpus = given.system.gpus
    assert isinstance(gpus, Ok)
    first, second = gpus.value.gpus
    changed: Gpu = replace(second, **changes)
    value: GpuSet = replace(gpus.value, gpus=(first, changed))
    return replace(given, system=replace(given.system, gpus=replace(gpus, value=value)))


def runs_of(given: Facts) -> tuple[GpuTest, ...]:
    assert isinstance(given.active, Ok)
    return given.active.value


def test_a_sound_machine_has_one_warning_and_one_thing_that_a_guest_cannot_know(recorded: Facts) -> None:
    ended = results(recorded)
    assert found(recorded) == {"GPD118"}
    assert ended["GPD118"].findings[0].severity == "warning"
    assert {code for code, r in ended.items() if r.status == "unknown"} == {"GPD132"}


def test_every_test_on_the_gpus_passed(recorded: Facts) -> None:
    assert [(t.test, t.gpus) for t in runs_of(recorded)] == [
        ("smoke", (0,)),
        ("smoke", (1,)),
        ("triton", (0,)),
        ("triton", (1,)),
        ("peer_copy", (0, 1)),
        ("peer_copy", (1, 0)),
        ("peer_ipc", (0, 1)),
        ("peer_ipc", (1, 0)),
        ("all_reduce", (0, 1)),
    ]
    ended = results(recorded)
    assert {ended[code].status for code in ("GPD218", "GPD219", "GPD223", "GPD403")} == {"ok"}


def test_what_was_not_there_is_said_to_be_missing_and_not_to_be_well(recorded: Facts) -> None:
    ended = results(recorded)
    assert ended["GPD107"].status == "skipped"
    assert {ended[code].detail for code in ("GPD105", "GPD106", "GPD107", "GPD201")} == {
        "neither SGLang nor vLLM is installed there"
    }


def test_an_engine_may_find_cufft_on_every_gpu_that_it_has_code_for(recorded: Facts) -> None:
    assert isinstance(recorded.libraries, Ok)
    (cufft,) = (one for one in recorded.libraries.value if one.path.endswith("/libcufft.so.12"))
    assert {"sm_90", "sm_120"} <= {t.name for t in cufft.targets}


def test_one_fault_more_is_one_finding_more(recorded: Facts) -> None:
    down = with_gpu(recorded, nvlinks=Ok(value=(True,) * 17 + (False,), at=0.0))
    narrow = with_gpu(recorded, link_width=Ok(value=8, at=0.0))
    broken = with_gpu(recorded, ecc_uncorrected=Ok(value=3, at=0.0))
    news = [found(one) - found(recorded) for one in (down, narrow, broken)]
    # A link that is narrower than the other's makes the GPUs unequal as well.
    assert news == [{"GPD404"}, {"GPD504", "GPD121"}, {"GPD502"}]


def test_an_all_reduce_that_hangs_is_one_finding_more(recorded: Facts) -> None:
    hung = tuple(replace(t, outcome="hung") if t.test == "all_reduce" else t for t in runs_of(recorded))
    assert found(replace(recorded, active=Ok(value=hung, at=0.0))) - found(recorded) == {"GPD219"}
