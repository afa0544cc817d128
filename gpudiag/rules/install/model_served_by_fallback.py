"""GPD706 before a start: SGLang cannot import the model's own file, says one line about it and serves a generic class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Finding
from gpudiag.model.install import Import
from gpudiag.rules.install.reading import part
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import plural

_MODELS: Final = "sglang.srt.models."
_IGNORED: Final = re.compile(r"Ignore import error when loading (sglang\.srt\.models\.[\w.]*\w)")


def evaluate(facts: Facts) -> Answer:
    imports = part(facts, lambda install: install.imports)
    if isinstance(imports, Answer):
        return imports
    wanted = [one for one in imports if one.module.startswith(_MODELS)]
    if not wanted:
        return skipped("no model named whose file SGLang would import")
    others = {m for one in imports for line in one.ignored for m in _IGNORED.findall(line)} - {w.module for w in wanted}
    extra = f"; SGLang goes on without {plural(len(others), 'other model file')}" if others else ""
    return found((f for one in wanted for f in _broken(one)), passed(f"{wanted[0].module} imports{extra}"))


def _broken(one: Import) -> Iterator[Finding]:
    if one.outcome == "ok":
        return
    cause = one.chain[-1] if one.chain else None
    why = f"{cause.type}: {cause.message.splitlines()[0][:160]}" if cause and cause.message else one.outcome
    yield CHECK.finding(
        f"SGLang will go on without {one.module} ({why}) and serve the model with a generic class, or refuse it",
        [
            seen("import", f"importing {one.module} ended: {why}"),
            seen("source-text", "srt/models/registry.py logs 'Ignore import error when loading' and goes on"),
        ],
        (
            "mend what keeps the file from importing; the findings of the same import name the line",
            "gpudiag doctor --only GPD106",
        ),
        subjects=(f"file:{one.module}",),
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD706",
        name="model-served-by-fallback",
        severity="error",
        category="model",
        asks="does the model's own file import, so that no generic class serves it?",
    ),
    evaluate=evaluate,
)
