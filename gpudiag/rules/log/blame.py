"""Which failure comes first: by who died, by time, and by who can only have been hit."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.model.log import Event, LogFacts, Milestone, Place, Speaker, Traceback
from gpudiag.model.server import Rank
from gpudiag.rules.log.case import Failure

HARDWARE_XIDS: Final = frozenset({48, 54, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 136, 140, 143, 149, 154, 155})
"""Xids that name the machine. 13, 31, 43 and 45 come from the program and are no hardware fault (NVIDIA's Xid catalogue)."""
SERVING: Final = 100
WORKING: Final = 120
TOLD_TO_STOP: Final = frozenset({"0", "-15", "-2", "143", "130"})
_HANG_TALK: Final = re.compile(r"No available|RPC call to|Health check failed")
_DEATH_TALK: Final = re.compile(r"SIGQUIT|sigquit|EngineDeadError")
_SECOND: Final = 1.0
"""What the clocks of two logs may differ by: they name whole seconds."""
_PROGRAM_ROOTS: Final = ("<module>", "_run_module_as_main")
_UNREGISTERED: Final = re.compile(r"_OpNamespace|operator \S+ does not exist|Could not run '")
_FATAL_INTRO: Final = re.compile(
    r"hit an exception|failed to start|fatal error|^Process \S+:|Error in inspecting|Uncaught|terminated", re.IGNORECASE
)
_RAS_PORT: Final = re.compile(r"\bRAS\b.{0,120}(?:bind|listen|socket)", re.IGNORECASE)
_NCCL_NOISE: Final = re.compile(r"\bRAS\b|Could not find|plugin|deprecated", re.IGNORECASE)


def failures(facts: LogFacts) -> tuple[Failure, ...]:
    """All candidates, most to blame first. Empty if nothing went wrong."""
    stop = _told_to_stop(facts)
    ranked: list[tuple[int, float, Place, Failure]] = []
    for trace in facts.tracebacks:
        rank = _exception_rank(facts, trace, stop)
        if rank is not None:
            failure = Failure(kind="exception", place=trace.place, speaker=trace.speaker, trace=trace)
            ranked.append((rank, _when(trace.place), trace.place, failure))
    for event in facts.events:
        level = _event_rank(facts, event, stop)
        if level is not None:
            ranked.append(
                (
                    level,
                    _when(event.place),
                    event.place,
                    Failure(kind="event", place=event.place, speaker=event.speaker, event=event),
                )
            )
    hang = _first_hang_sign(facts, stop)
    if hang is not None:
        ranked.append((1, _when(hang.place), hang.place, hang))
    by_line = _mixed(ranked)
    ranked.sort(
        key=lambda r: (r[0], r[2].source, 0.0, r[2].number) if by_line else (r[0], 0, r[1], r[2].source * 1e9 + r[2].number)
    )
    if not ranked:
        answer = _first_victim(facts, stop) or _unfinished_start(facts, stop)
        return (answer,) if answer is not None else ()
    return tuple(r[3] for r in ranked)


def silent_rank(facts: LogFacts) -> int | None:
    """The one rank that never complained, if all others did: the one the others lost."""
    known = {m.speaker.rank.global_ for m in facts.milestones} | {t.speaker.rank.global_ for t in facts.tracebacks}
    if facts.world_size:
        known |= set(range(min(facts.world_size, 4096)))
    loud = {t.speaker.rank.global_ for t in facts.tracebacks if any(n.victim for n in t.chain())}
    left = sorted(r for r in known - loud if r is not None)
    return left[0] if len(left) == 1 and any(r is not None for r in loud) else None


def rank_of_process(facts: LogFacts, speaker: Speaker) -> Rank:
    """The rank of a process known by its pid only."""
    if speaker.rank != Rank() or speaker.pid is None:
        return speaker.rank
    for other in (
        *(m.speaker for m in facts.milestones),
        *(t.speaker for t in facts.tracebacks),
        *(d.speaker for d in facts.dumps),
    ):
        if other.pid == speaker.pid and other.rank != Rank():
            return other.rank
    return speaker.rank


def serving_after(facts: LogFacts, place: Place) -> Milestone | None:
    """A milestone behind `place` that shows requests being answered."""
    return next((m for m in facts.milestones if m.order >= WORKING and _behind(m.place, place)), None)


def _mixed(ranked: list[tuple[int, float, Place, Failure]]) -> bool:
    """Whether some candidates name no time, so that only the order of the lines is left."""
    return len({r[2].source for r in ranked}) < 2 or any(r[2].clock_s is None for r in ranked)


def _when(place: Place) -> float:
    return place.clock_s if place.clock_s is not None else 0.0


def _behind(later: Place, earlier: Place) -> bool:
    return later.source == earlier.source and later.number > earlier.number


def _told_to_stop(facts: LogFacts) -> Event | None:
    """The order to shut down, if one came while the server was up."""
    return next((e for e in facts.events if e.kind == "sigterm"), None)


def _after_stop(place: Place, stop: Event | None) -> bool:
    return stop is not None and _behind(place, stop.place)


def _exception_rank(facts: LogFacts, trace: Traceback, stop: Event | None) -> int | None:
    """How much a traceback may be to blame: 1 most, None not at all."""
    if not any(n.victim is None and n.exception for n in trace.chain()) or _chain_is_victim(trace):
        return None
    if _after_stop(trace.place, stop) or _core_dump_asked_for(facts, trace):
        return None
    uncaught = bool(trace.frames) and (
        trace.frames[0].function in _PROGRAM_ROOTS or trace.frames[0].file in ("<string>", "<frozen runpy>")
    )
    fatal = uncaught or _death_after(facts, trace.end)
    recovered = _recovered(facts, trace)
    if recovered:
        # Logged and survived is no cause; what ends a process may still be followed by the output of others.
        return 2 if fatal and (uncaught or _FATAL_INTRO.search(trace.intro)) else None
    return 1 if fatal else 3


def _chain_is_victim(trace: Traceback) -> bool:
    """A victim at the root of the chain makes victims of what it caused, unless something was raised inside its message."""
    root = next(iter(trace.chain()))
    if root.victim is None:
        return False
    return all(n.victim is not None or n is trace or not n.frames for n in trace.chain())


def _core_dump_asked_for(facts: LogFacts, trace: Traceback) -> bool:
    """Whether the exception is the end that a requested GPU core dump puts to the kernels of a hung server.

    They fail with 'unspecified launch failure', and torch's watchdog had asked for its own dump before that.
    """
    if not any("unspecified launch failure" in n.message for n in trace.chain()):
        return False
    return any("preparing to dump debug info" in e.text and _behind(trace.place, e.place) for e in facts.of("collective-status"))


def _death_after(facts: LogFacts, place: Place) -> bool:
    if any(e.kind in ("worker-died", "native-crash", "elastic") and _behind(e.place, place) for e in facts.events):
        return True
    if any(e.kind == "victim" and _DEATH_TALK.search(e.text) and _behind(e.place, place) for e in facts.events):
        return True
    return any(t.victim is not None and _behind(t.place, place) for t in facts.tracebacks)


def _recovered(facts: LogFacts, trace: Traceback) -> bool:
    """Whether the process that raised went on: it reached a later milestone, or the whole server answered a request later."""
    for milestone in facts.milestones:
        if not _behind(milestone.place, trace.end):
            continue
        if milestone.speaker.same_process(trace.speaker) and milestone.speaker.tag != "root":
            return True
        if milestone.order >= (WORKING if trace.speaker.rank != Rank() else SERVING):
            return True
    return False


def _event_rank(facts: LogFacts, event: Event, stop: Event | None) -> int | None:
    """The same for an event; 0 is for what outranks any software: hardware, and the kernel's own words."""
    if event.kind == "xid":
        return 0 if int(event.fields.get("xid", "0")[:6]) in HARDWARE_XIDS else None
    if event.kind == "oom-kill":
        return 0 if _is_ours(facts, event) else 4
    if _after_stop(event.place, stop) or _inside_traceback(facts, event):
        return None
    if event.kind in ("worker-died", "elastic", "native-crash"):
        return _death_rank(facts, event)
    if event.kind in ("custom-all-reduce", "usage-error"):
        return 1
    if event.kind == "model-class":
        return 5 if event.fields.get("model_class", "").startswith("Transformers") else None
    return _warning_rank(facts, event)


def _death_rank(facts: LogFacts, event: Event) -> int | None:
    """A death by signal is a cause; an exit code only says that there is one; an order to stop says nothing."""
    if event.kind != "native-crash":
        code = event.fields.get("code")
        if code is None:
            return 2
        if code in TOLD_TO_STOP or _ended_by_its_server(facts, event):
            return None
        return 1 if code.startswith("-") else 3
    asked = any("preparing to dump debug info" in e.text and _behind(event.place, e.place) for e in facts.of("collective-status"))
    if asked:
        return None
    # The words after which the C++ runtime aborts are the echo of an exception that is in the log as well.
    return 1 if "error" not in event.fields or "Python" in event.text or "Seg" in event.text else 4


def _ended_by_its_server(facts: LogFacts, event: Event) -> bool:
    """Whether a server that nothing had died in was ending itself, and with it its processes, when this one was gone.

    SGLang kills its tree at every end, in order or not (srt/utils: kill_process_tree, 0.5.23).
    """
    for end in (e for e in facts.of("shutdown") if "kill_process_tree" in e.text):
        deaths = (e for e in facts.of("worker-died", "victim") if e.kind == "worker-died" or _DEATH_TALK.search(e.text))
        if any(_behind(end.place, e.place) for e in deaths):
            continue
        if _behind(event.place, end.place):
            return True
        clocks = (event.place.clock_s, end.place.clock_s)
        apart = end.place.source != event.place.source
        if apart and clocks[0] is not None and clocks[1] is not None and clocks[0] >= clocks[1] - _SECOND:
            return True
    return False


def _warning_rank(facts: LogFacts, event: Event) -> int | None:
    """Lines that many a healthy server writes as well: they count only if it did not come up after them."""
    served = serving_after(facts, event.place) is not None
    if event.kind == "library" and any(_UNREGISTERED.search(n.message) for t in facts.tracebacks for n in t.chain()):
        # An extension that did not load is why its operators are missing later.
        return 1
    if event.kind in ("address-in-use", "library", "error-line"):
        return 3 if not served else 5 if _death_after(facts, event.place) else None
    if event.kind == "nccl-warn":
        if _RAS_PORT.search(event.text):
            return 6
        return None if served or _NCCL_NOISE.search(event.text) else 4
    return None


def _is_ours(facts: LogFacts, event: Event) -> bool:
    """Whether the kernel killed a process of a server: its name or its pid is in the logs."""
    name = event.fields.get("name", "")
    if re.match(r"VLLM|vllm|sglang|python|pt_|ray::", name):
        return True
    pid = int(event.fields.get("pid", "0")[:9])
    return any(m.speaker.pid == pid for m in facts.milestones)


def _inside_traceback(facts: LogFacts, event: Event) -> bool:
    place = event.place
    return any(t.place.source == place.source and t.place.number <= place.number <= t.end.number for t in facts.tracebacks)


def _first_hang_sign(facts: LogFacts, stop: Event | None) -> Failure | None:
    """The first line, dump or record that says that somebody waits for somebody."""
    for event in facts.events:
        if _after_stop(event.place, stop):
            continue
        waits = event.kind in ("collective-status", "baton") or (event.kind == "watchdog" and event.fields.get("soft") != "True")
        if event.kind == "collective-timeout" or (waits and serving_after(facts, event.place) is None):
            return Failure(kind="hang", place=event.place, speaker=event.speaker, event=event)
    stopped = next((d for d in facts.dumps if d.stopped), None)
    if stopped is not None:
        return Failure(kind="hang", place=stopped.place, speaker=stopped.speaker)
    if facts.flight or facts.ras:
        return Failure(kind="hang", place=Place(source=len(facts.sources), number=0))
    return None


def _unfinished_start(facts: LogFacts, stop: Event | None) -> Failure | None:
    """A log that stops before the server was up: a hang, a kill, or a start that still goes on."""
    if stop is not None or any(m.order >= SERVING for m in facts.milestones):
        return None
    last = max((m.place for m in facts.milestones), default=None) or max((e.place for e in facts.of("nccl-info")), default=None)
    return Failure(kind="hang", place=last) if last is not None else None


def _first_victim(facts: LogFacts, stop: Event | None) -> Failure | None:
    """Only answers are left: the first of them, unless the server recovered from it."""
    found: list[Failure] = []
    for trace in facts.tracebacks:
        answers = trace.victim is not None or _chain_is_victim(trace)
        if answers and not _after_stop(trace.place, stop) and not _recovered(facts, trace):
            found.append(Failure(kind="victim", place=trace.place, speaker=trace.speaker, trace=trace))
    for event in facts.events:
        if event.kind == "victim" and not _after_stop(event.place, stop):
            healed = serving_after(facts, event.place) is not None and bool(_HANG_TALK.search(event.text))
            if not healed:
                found.append(Failure(kind="victim", place=event.place, speaker=event.speaker, event=event))
    traces = [f for f in found if f.trace is not None]
    return next(iter(traces or sorted(found, key=lambda f: (f.place.source, f.place.number))), None)
