"""GPD211: the model is not where the command line says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD211"
NAME: Final = "model-path-missing"

_PATTERN: Final = re.compile(
    r"HFValidationError: Repo id must (?:be in the form|use)[^\n]*?: '(?P<path>[^']+)'|"
    r"RepositoryNotFoundError|LocalEntryNotFoundError|OfflineModeIsEnabled|"
    r"^OSError: (?P<path2>\S+) is not a local folder and is not a valid model|Can't "
    r"load (?:the configuration|tokenizer|image processor) (?:of|for) '(?P<path3>[^']+)'|"
    r"does not appear to have a file named config\.json|Couldn't find (?:any )?config|FileNotFoundError: "
    r"\[Errno 2\] No such file or directory: '(?P<path4>[^']*(?:config\.json|tokenizer[^'/]*))'|"
    r"[Ii]nvalid repository ID or local directory specified: '(?P<path5>[^']+)'"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    path = next((hit.get(f"path{n}") for n in ("", "2", "3", "4", "5") if hit.get(f"path{n}")), None) or case.facts.model
    shown = path or "the model"
    local = bool(path) and str(path).startswith(("/", "./", "~"))
    steps = (
        [f"ls -ld {path}", "inside a container: check that the folder is mounted"]
        if local
        else ["check the model's name and HF_TOKEN", "unset HF_HUB_OFFLINE, or download the model first"]
    )
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} finds no model at {shown}" + (": the folder does not exist or holds no config.json" if local else ""),
        steps,
        path=path,
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=60, evaluate=_evaluate)
