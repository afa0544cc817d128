"""GPD126: an engine remembers peer access from before, and it may be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, P2pCache
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.p2p_caches
    if not isinstance(reading, Ok):
        return unread(reading)
    if not reading.value:
        return skipped("no engine has remembered anything yet")
    made = [finding for cache in reading.value if (finding := _stale(cache, facts))]
    return found(made, passed(f"{len(reading.value)} remembered, as new as the running system"))


def _stale(cache: P2pCache, facts: Facts) -> Finding | None:
    reasons = list(_reasons(cache, facts))
    if not reasons:
        return None
    return CHECK.finding(
        f"What is remembered about peer access is stale: {reasons[0]}",
        [seen("file-system", reason, cache.path) for reason in reasons],
        (f"rm {cache.path}", "the engine tests again at the next start"),
        culprits=(Culprit(node=f"file:{cache.path}", path=cache.path),),
    )


def _reasons(cache: P2pCache, facts: Facts) -> Iterator[str]:
    if cache.pairs is None:
        yield "the file is not whole JSON: its writer was killed"
        return
    boot = facts.system.boot_at
    if isinstance(boot, Ok) and cache.modified_at < boot.value:
        yield "it is from before the last boot, with perhaps another driver, firmware or kernel option"
    gpus = facts.system.gpus
    if isinstance(gpus, Ok):
        for peer in gpus.value.peers:
            if cache.pairs.get(f"{peer.source}->{peer.target}") and (peer.read or peer.write):
                yield f"it says that GPU {peer.source} reaches {peer.target}, the driver says no"
                return


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD126",
        name="p2p-cache-stale",
        severity="warning",
        category="environment",
        asks="is what the engines remember about peer access still true?",
    ),
    evaluate=evaluate,
)
