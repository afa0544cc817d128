"""GPD127: the engine will believe the driver about peer access over PCIe, without a test."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, ServedBy
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.system.gpus import gpu_set, has_nvlink

_DEFAULTS: Final[dict[ServedBy, tuple[str, str]]] = {
    "vllm": ("VLLM_SKIP_P2P_CHECK", "1"),
    "sglang": ("SGLANG_SKIP_P2P_CHECK", "0"),
}
"""Variable and default: vllm/envs.py 0.33.0 trusts the driver, sglang 0.5.23 copies and compares."""


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    count = facts.asked.tp if facts.asked.tp > 1 else len(gpus.gpus)
    if count != 2:
        return skipped("custom all-reduce over PCIe is used with exactly two GPUs")
    if has_nvlink(gpus):
        return skipped("the GPUs have NVLink")
    engine = facts.asked.engine or _installed(facts)
    if engine is None:
        return skipped("no engine named")
    variable, default = _DEFAULTS[engine]
    value = facts.system.environment.get(variable, default)
    if value.strip().lower() in ("0", "false", ""):
        return passed(f"{engine} tests it")
    made = CHECK.finding(
        f"{engine} will trust the driver about peer access between two PCIe GPUs and not test it",
        [seen("environment", f"{variable} is {value}" + ("" if variable in facts.system.environment else " (its default)"))],
        (f"export {variable}=0, so that {engine} copies and compares before it relies on it", "or gpudiag doctor --active"),
    )
    return found([made], passed(""))


def _installed(facts: Facts) -> ServedBy | None:
    """The engine of the interpreter that was looked at, if it has one and not both."""
    environment = facts.environment
    if environment is None:
        return None
    names = [engine for engine in _DEFAULTS if environment.distribution(engine) is not None]
    return names[0] if len(names) == 1 else None


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD127",
        name="p2p-check-skipped",
        severity="warning",
        category="link",
        asks="will the engine test peer access before it relies on it?",
    ),
    evaluate=evaluate,
)
