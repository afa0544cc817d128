"""GPD122: this combination of versions, or of versions and GPUs, has been reported to hang or to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Finding
from gpudiag.model.install import Environment
from gpudiag.model.reading import Ok
from gpudiag.rules.install.reading import environment
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen
from gpudiag.rules.preflight.words import plural, version
from gpudiag.rules.system.gpus import capabilities


class KnownBad(Struct, frozen=True, kw_only=True):
    """One report. `holds` says what of it is the case here ('' if it is not). `until` is when to look at it again."""

    holds: Callable[[Environment, Facts], str]
    what: str
    step: str
    evidence: str
    until: str


def _between(text: str, first: str, last: str) -> bool:
    return bool(text) and version(first) <= version(text) <= version(last)


def _of(about: Environment, *names: str) -> str:
    return next((d.version for n in names if (d := about.distribution(n)) is not None), "")


def _nccl(facts: Facts) -> str:
    """Version of the NCCL that torch will load, which need not be that of the environment; '' if its file does not tell."""
    loaded = facts.install.value.nccl if isinstance(facts.install, Ok) else None
    return (loaded.value[0].version or "") if isinstance(loaded, Ok) and loaded.value else ""


def _major(facts: Facts) -> set[int]:
    return {version(c)[0] for c in capabilities(facts) if version(c)}


def _nccl_nvls(about: Environment, facts: Facts) -> str:
    nccl = _nccl(facts) or _of(about, "nvidia-nccl-cu13", "nvidia-nccl-cu12")
    return f"NCCL {nccl} on Blackwell" if _between(nccl, "2.30.4", "2.30.7") and 10 in _major(facts) else ""


def _flashinfer_b200(about: Environment, facts: Facts) -> str:
    have = _of(about, "flashinfer-python")
    return f"FlashInfer {have} on Blackwell" if _between(have, "0.6.7", "0.6.8") and 10 in _major(facts) else ""


def _both_engines(about: Environment, facts: Facts) -> str:  # noqa: ARG001  one signature for all reports
    sglang, vllm = _of(about, "sglang"), _of(about, "vllm")
    return f"sglang {sglang} and vllm {vllm} in one environment" if sglang and vllm else ""


def _driver(about: Environment, facts: Facts) -> str:  # noqa: ARG001
    gpus = facts.system.gpus
    bad = isinstance(gpus, Ok) and gpus.value.driver.version.startswith("545.29.02")
    return "driver 545.29.02" if bad else ""


KNOWN: Final = (
    KnownBad(
        holds=_nccl_nvls,
        what="weight loading of MoE models deadlocks in NVLS set-up, GPUs at 0 %",
        step="pin nvidia-nccl 2.28.9, or export NCCL_NVLS_ENABLE=0",
        evidence="https://github.com/NVIDIA/nccl/issues/2167",
        until="2027-06",
    ),
    KnownBad(
        holds=_flashinfer_b200,
        what="workers hang with expert parallelism 8",
        step="use a newer flashinfer-python that the engine allows",
        evidence="https://github.com/vllm-project/vllm/issues/42186",
        until="2027-06",
    ),
    KnownBad(
        holds=_both_engines,
        what="they pin different versions of torch, xgrammar, numba and FlashInfer, so that one of them is broken",
        step="one environment for each engine",
        evidence="METADATA of sglang 0.5.23 and vllm 0.33.0",
        until="2027-12",
    ),
    KnownBad(
        holds=_driver,
        what="tensor parallelism hangs",
        step="another driver",
        evidence="https://github.com/vllm-project/vllm/issues/1801",
        until="2027-12",
    ),
)


def evaluate(facts: Facts) -> Answer:
    about = environment(facts)
    if isinstance(about, Answer):
        return about
    return found(_reports(about, facts), passed(f"none of {plural(len(KNOWN), 'reported combination')}"))


def _reports(about: Environment, facts: Facts) -> Iterator[Finding]:
    for known in KNOWN:
        case = known.holds(about, facts)
        if case:
            yield CHECK.finding(
                f"Reported with {case}: {known.what}",
                [seen("package-metadata", case), seen("known-report", known.evidence)],
                (known.step,),
            )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD122",
        name="known-bad-version-pair",
        severity="warning",
        category="install",
        asks="is this combination of versions free of known trouble?",
    ),
    evaluate=evaluate,
)
