"""GPD119: the container has less memory than the model has weights."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.preflight.words import size

_MARGIN: Final = 1.1
"""Weights pass through the page cache and pinned buffers while they are loaded."""


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.cgroup
    if not isinstance(reading, Ok):
        return unread(reading)
    limit = reading.value.memory_bytes
    if limit is None:
        return passed("no memory limit")
    if not isinstance(facts.model, Ok):
        return passed(f"limit {size(limit)}; compared with a model when --model names one")
    weights = facts.model.value.weight_bytes
    if limit >= weights * _MARGIN:
        return passed(f"limit {size(limit)}, weights {size(weights)}")
    made = CHECK.finding(
        f"The container may use {size(limit)}, the weights are {size(weights)}: loading will be slow, or be killed",
        [
            seen("file-system", f"memory limit of {reading.value.path}: {limit} bytes"),
            seen("file-system", f"weight files of {facts.model.value.path}: {weights} bytes"),
        ],
        (f"give it at least {size(int(weights * _MARGIN))}: docker run --memory, resources.limits.memory in Kubernetes",),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD119",
        name="cgroup-memory-below-model",
        severity="warning",
        category="host",
        asks="does the container have memory enough to load the model?",
    ),
    evaluate=evaluate,
)
