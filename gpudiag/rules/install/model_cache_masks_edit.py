"""GPD124: vLLM will use what it once learnt of a model class, though a file below that class has changed since."""

from __future__ import annotations

from typing import Final

import msgspec

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit
from gpudiag.model.install import CachedInfo
from gpudiag.model.reading import Ok
from gpudiag.rules.install.reading import engines, environment, part, short
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import listing


def evaluate(facts: Facts) -> Answer:
    stale = part(facts, lambda install: install.stale_caches)
    if isinstance(stale, Answer):
        return stale
    about = environment(facts)
    if not isinstance(about, Answer) and "vllm" not in engines(about):
        return skipped("no vLLM there")
    made = (
        CHECK.finding(
            f"vLLM remembers {one.model_module} from before {listing([short(p) for p in one.changed], 2)} changed",
            [
                seen(
                    "file-system",
                    "the cached description is older than a module that the class builds on",
                    "\n".join((one.path, *one.changed)),
                ),
                seen("source-text", "its key is a hash of the class's own file alone (registry.py, _get_modelinfo_module_hash)"),
            ],
            (f"rm {one.path}", "the next start inspects the class again"),
            culprits=(Culprit(node=f"file:{one.path}", path=one.path),),
        )
        for one in (_edited(one, facts) for one in stale)
        if one.changed
    )
    return found(made, passed("no cached description is older than its class"))


def _edited(one: CachedInfo, facts: Facts) -> CachedInfo:
    """Only the files that were edited, where RECORD tells: a reinstall makes all files newer and changes none."""
    verified = facts.install.value.verification if isinstance(facts.install, Ok) else None
    if not isinstance(verified, Ok) or not verified.value.files:
        return one
    if any(why.startswith("editable") for why in verified.value.unverifiable.values()):
        return one
    edited = {c.path for c in verified.value.changes}
    return msgspec.structs.replace(one, changed=tuple(p for p in one.changed if p in edited))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD124",
        name="model-cache-masks-edit",
        severity="warning",
        category="install",
        asks="is what vLLM remembers of model classes still true?",
    ),
    evaluate=evaluate,
)
