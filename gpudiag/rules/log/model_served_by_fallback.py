"""GPD706: the model's own file failed to import, and a generic class serves in its place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.log import Event, LogFacts
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import line_evidence, node_of

CODE: Final = "GPD706"
NAME: Final = "model-served-by-fallback"

UNPARSED: Final = re.compile(r"(?P<what>.{1,200}) \((?P<file>[\w.-]+\.py), line (?P<line>\d+)\)$")
_FALLBACK: Final = re.compile(r"^Transformers\w+")
_TASK: Final = re.compile(r"(?:For\w+|Model)$")


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is None or event.kind != "model-class" or not _FALLBACK.match(event.fields.get("model_class", "")):
        return
    own = own_import(case.facts)
    if own is None:
        return
    module, error = own.fields["module"], own.fields["error"]
    syntax = UNPARSED.search(error)
    what = (
        f"does not parse at line {syntax.group('line')} ({syntax.group('what')})"
        if syntax
        else f"cannot be imported ({error[:140]})"
    )
    file = file_of(own)
    yield finding(
        CODE,
        NAME,
        "error",
        title=f"{file.rpartition('/')[2]} {what}, so {event.fields['model_class']} serves the model instead of its own class",
        links=[
            [line_evidence(case.facts, own, "the import error that was passed over")],
            [line_evidence(case.facts, event, "the class that serves")],
        ],
        next_steps=[
            f"python -c 'import {module}'",
            "correct the file and restart: until then the server is slower and may answer differently",
        ],
        culprits=[
            Culprit(
                node=node_of(case.facts, own.speaker),
                file=file,
                line=int(syntax.group("line")) if syntax else None,
            )
        ],
    )


def file_of(own: Event) -> str:
    """The file that an ignored import is about: the module's own, below its package, or the one that Python names."""
    syntax = UNPARSED.search(own.fields["error"])
    if syntax is not None and not _names_itself(own):
        return syntax.group("file")
    return own.fields["module"].replace(".", "/") + ".py"


def own_import(facts: LogFacts) -> Event | None:
    """The ignored import of the served architecture's own module; without its name, of a file that does not parse."""
    ignored = facts.of("import-ignored")
    stems = {_stem(e.fields["architecture"]) for e in facts.of("model-class") if "architecture" in e.fields}
    own = next((e for e in ignored if e.fields["module"].rpartition(".")[2].replace("_", "") in stems), None)
    if own is not None:
        return own
    broken = [e for e in ignored if UNPARSED.search(e.fields["error"])]
    return next((e for e in broken if _names_itself(e)), broken[0] if broken else None)


def _stem(architecture: str) -> str:
    """'LlamaForCausalLM' as a module is called: 'llama'."""
    return _TASK.sub("", architecture).lower()


def _names_itself(event: Event) -> bool:
    """Whether the module that failed is the file with the error, and not one that imports it."""
    found = UNPARSED.search(event.fields["error"])
    return found is not None and event.fields["module"].rpartition(".")[2] + ".py" == found.group("file")


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=60, evaluate=_evaluate)
