"""GPD703: an engine's own limit ended a hung server before anybody could look, and left no stacks.

vLLM: `RPC call to METHOD timed out` (v1/executor/multiproc_executor.py, limit VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, 300 s), and
its shutdown then kills the workers. SGLang: the scheduler's watchdog (managers/scheduler.py, --watchdog-timeout, 300 s) dumps
stacks with py-spy if it finds one and sends SIGQUIT to its parent, which kills the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.log import Event
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import consequences, culprit, line_evidence, traceback_evidence, who

CODE: Final = "GPD703"
NAME: Final = "watchdog-destroys-evidence"

_CALL: Final = re.compile(r"RPC call to (?P<method>\w+) timed out")
_KILLS: Final = re.compile(r"force killing|SIGQUIT received|eceived sigquit|kill_process_tree called")


def _evaluate(case: LogCase) -> Iterable[Finding]:
    facts = case.facts
    if facts.flight or facts.ras or any(d.threads or d.stopped for d in facts.dumps):
        return
    killed = next((e for e in facts.of("shutdown", "victim") if _after(case, e) and _KILLS.search(e.text)), None)
    fired = _vllm(case) or _sglang(case)
    if fired is None or killed is None:
        return
    title, told, steps = fired
    yield finding(
        CODE,
        NAME,
        "warning",
        title=f"{title}: what hung is gone, and no stack of it was kept",
        links=[[told], [line_evidence(facts, killed, "and then it ended the processes")]],
        next_steps=(*steps, "before the limit, while it hangs: `gpudiag attach --record hang.gpudiag`"),
        culprits=[culprit(facts, case.failure.speaker)],
        consequences=consequences(case),
    )


def _after(case: LogCase, event: Event) -> bool:
    place = case.failure.place
    return event.place.source == place.source and event.place.number > place.number


def _vllm(case: LogCase) -> tuple[str, Evidence, tuple[str, ...]] | None:
    for node in case.failure.trace.chain() if case.failure.trace is not None else ():
        call = _CALL.search(node.message)
        if call is not None:
            title = f"{who(case.facts, case.failure.speaker)} gave up on workers that did not answer {call['method']}"
            steps = ("start with a longer limit: `VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=3600`",)
            return title, traceback_evidence(case.facts, node), steps
    return None


def _sglang(case: LogCase) -> tuple[str, Evidence, tuple[str, ...]] | None:
    event = case.failure.event
    if event is None or event.kind != "watchdog" or event.fields.get("soft") == "True":
        return None
    title = f"a watchdog ended the server after {event.fields.get('limit', '?')} s without progress"
    steps = (
        "start with a longer limit: `--watchdog-timeout 3600`",
        "put py-spy on the server's PATH: the watchdog then writes all stacks to the log before it ends the server",
    )
    return title, line_evidence(case.facts, event, "the watchdog"), steps


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="warning", specificity=5, evaluate=_evaluate)
