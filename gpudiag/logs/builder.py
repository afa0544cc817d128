"""Lines into facts: one builder takes all sources of one set of logs."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

import msgspec

from gpudiag.logs.documents import DocumentReader
from gpudiag.logs.dumps import DumpReader
from gpudiag.logs.events import events_in, milestone_in, victim_reason
from gpudiag.logs.grammar import Prefix, parse
from gpudiag.logs.store import Kept
from gpudiag.logs.text import segments
from gpudiag.logs.tracebacks import Assembler
from gpudiag.model.log import (
    Document,
    Ending,
    Event,
    EventKind,
    FlightRecord,
    LogFacts,
    LogLine,
    LogSource,
    Milestone,
    Place,
    Speaker,
    StackDump,
    Traceback,
)
from gpudiag.model.server import Engine, Rank

MAX_LINE_CHARS: Final = 65_536
MAX_MILESTONES: Final = 8192
TAIL_LINES: Final = 12

_VERSION: Final = re.compile(r"LLM engine \(v([\w.+-]{1,40})\)|(?<!NCCL )\bversion (\d+\.\d+\.\d[\w.+-]{0,30})\s*$")
_TP: Final = re.compile(r"(?:'?tp_size'?[=:] ?|'?tensor_parallel_size'?[=:] ?)(\d{1,5})")
_WORLD: Final = re.compile(r"\bworld_size=(\d{1,6})|\bnranks (\d{1,6})")
_MODEL: Final = re.compile(r"'?model_path'?[=:] ?'([^']{1,500})'|'model': '([^']{1,500})'|\bmodel='([^']{1,500})'")
_ROOT: Final = re.compile(r"Started server process \[(\d{1,9})\]|parent_pid=(\d{1,9})")
_DIED: Final = frozenset[EventKind]({"worker-died", "oom-kill", "native-crash", "usage-error", "custom-all-reduce"})
_HURT: Final = re.compile(r"SIGQUIT|sigquit|EngineDeadError")


class Builder:
    """Feed `line`, then ask for `facts`."""

    def __init__(self) -> None:
        self.read = 0
        """Lines that were looked at, of all sources."""
        self._traces: dict[int, Kept[Traceback]] = {}
        self._events: dict[tuple[int, EventKind], Kept[Event]] = {}
        self._milestones: dict[tuple[int, str, int | None, str], Milestone] = {}
        self._dumps: Kept[StackDump] = Kept(128)
        self._documents: Kept[Document] = Kept(32)
        self._flight: list[FlightRecord] = []
        self._sources: list[LogSource] = []
        self._unread: list[tuple[str, str, str]] = []
        self._tail: list[LogLine] = []
        self._assembler = Assembler()
        self._dump_reader = DumpReader()
        self._document_reader = DocumentReader()
        self._runs: dict[int, int] = {}
        self._forms: dict[str, int] = {}
        self._version: str | None = None
        self._tp: int | None = None
        self._world: int | None = None
        self._model: str | None = None
        self._root: int | None = None
        self._ranks: dict[int, Rank] = {}

    @property
    def listening(self) -> bool:
        """Whether the next line matters whatever it says."""
        return self._assembler.listening or self._dump_reader.listening or self._document_reader.listening

    def line(self, source: int, number: int, raw: bytes, before: bytes = b"") -> None:
        """Take one line of a source; `before` is the line ahead of it if that was passed over."""
        self.read += 1
        for text in segments(raw[:MAX_LINE_CHARS]):
            prefix = parse(text)
            place = Place(source=source, number=number, clock_s=prefix.clock_s)
            self._forms[prefix.form] = self._forms.get(prefix.form, 0) + 1
            if prefix.speaker.pid is not None and prefix.speaker.rank != Rank() and len(self._ranks) < 65_536:
                self._ranks[prefix.speaker.pid] = prefix.speaker.rank
            # A start forgets what was noted before, and says the same anew in its own line.
            self._meaning(text, prefix, place)
            self._note(text, prefix)
            for trace in self._assembler.feed(place, prefix, _intro(before)):
                self._add_trace(trace)
            for dump in self._dump_reader.feed(prefix.text, place, prefix.speaker):
                self._dumps.add(dump)
            for document in self._document_reader.feed(prefix.text, place):
                self._documents.add(document)

    def _meaning(self, text: str, prefix: Prefix, place: Place) -> None:
        for event in events_in(text, prefix, place):
            if event.kind == "run-start":
                self._restart(place.source)
            self._events.setdefault((place.source, event.kind), Kept()).add(event)
        reached = milestone_in(text, prefix, place)
        if reached is not None:
            key = (place.source, reached.speaker.tag, reached.speaker.pid, reached.name)
            if key in self._milestones or len(self._milestones) < MAX_MILESTONES:
                self._milestones[key] = reached

    def _restart(self, source: int) -> None:
        """What was said before of size and model was another run's; from the second start on, so was what it died of."""
        self._runs[source] = self._runs.get(source, 0) + 1
        self._tp = self._world = self._model = self._root = None
        if self._runs[source] == 1:
            # Its own banner, with the version, comes before this line.
            return
        self._version = None
        self._assembler.flush()
        self._traces.pop(source, None)
        for key in [k for k in self._events if k[0] == source]:
            del self._events[key]
        for name in [k for k in self._milestones if k[0] == source]:
            del self._milestones[name]

    def _note(self, text: str, prefix: Prefix) -> None:
        if self._version is None and ("version " in text or "engine (v" in text) and (found := _VERSION.search(text)):
            self._version = found.group(1) or found.group(2)
        if self._tp is None and ("tp_size" in text or "tensor_par" in text) and (found := _TP.search(text)):
            self._tp = int(found.group(1))
        if self._world is None and ("world_size" in text or "nranks" in text) and (found := _WORLD.search(text)):
            self._world = int(found.group(1) or found.group(2))
        if self._model is None and "model" in text and (found := _MODEL.search(text)):
            self._model = found.group(1) or found.group(2) or found.group(3)
        if prefix.speaker.tag == "APIServer":
            self._root = self._root or prefix.speaker.pid
        if self._root is None and (found := _ROOT.search(text)):
            self._root = int(found.group(1) or found.group(2))

    def _add_trace(self, trace: Traceback) -> None:
        self._traces.setdefault(trace.place.source, Kept()).add(_judged(trace))

    def end_open(self) -> None:
        """What is being read is over: its next lines are not to come."""
        for trace in self._assembler.flush():
            self._add_trace(trace)
        for dump in self._dump_reader.flush():
            self._dumps.add(dump)
        for document in self._document_reader.flush():
            self._documents.add(document)

    def end_source(self, entry: LogSource, last: bytes) -> None:
        """The source is over; `last` is its final stretch of text."""
        self.end_open()
        index = len(self._sources)
        runs = self._runs.get(index, 0)
        if runs > 1:
            entry = msgspec.structs.replace(entry, notes=(*entry.notes, f"holds {runs} runs; only the last was judged"))
        self._sources.append(entry)
        lines: deque[LogLine] = deque(maxlen=TAIL_LINES)
        total = last.count(b"\n")
        for at, raw in enumerate(last.splitlines()[-64:]):
            for text in segments(raw[:4096]):
                if text.strip():
                    prefix = parse(text)
                    place = Place(source=index, number=max(1, entry.lines - min(total, 64) + at + 1), clock_s=prefix.clock_s)
                    lines.append(LogLine(place=place, speaker=prefix.speaker, text=prefix.text[:300], level=prefix.level))
        self._tail.extend(lines)

    def add_flight(self, record: FlightRecord, entry: LogSource) -> None:
        self._flight.append(record)
        self._sources.append(entry)

    def add_dump(self, dump: StackDump, entry: LogSource) -> None:
        self._dumps.add(dump)
        self._sources.append(entry)

    def unreadable(self, name: str, reason: str, help: str) -> None:
        self._unread.append((name, reason, help))

    @property
    def next_source(self) -> int:
        return len(self._sources)

    def facts(self) -> LogFacts:
        traces = sorted(
            (t for kept in self._traces.values() for t in kept.items()), key=lambda t: (t.place.source, t.place.number)
        )
        events = sorted(
            (e for kept in self._events.values() for e in kept.items()), key=lambda e: (e.place.source, e.place.number)
        )
        dropped = sum(k.dropped for k in self._traces.values()) + sum(k.dropped for k in self._events.values())
        world = self._world if self._world and (not self._tp or self._world >= self._tp) else self._tp
        return LogFacts(
            sources=tuple(self._sources),
            engine=self._engine(traces),
            version=self._version,
            root_pid=self._root,
            world_size=world,
            tensor_parallel=self._tp,
            model=self._model,
            tracebacks=tuple(self._with_rank(t) for t in traces),
            events=tuple(events),
            milestones=tuple(sorted(self._milestones.values(), key=lambda m: (m.place.source, m.place.number))),
            dumps=tuple(self._dumps.items()),
            flight=tuple(self._flight),
            ras=tuple(self._document_reader.ras),
            documents=tuple(self._documents.items()),
            tail=tuple(self._tail),
            ending=_ending(traces, events),
            dropped=dropped,
            unread=tuple(self._unread),
        )

    def _with_rank(self, trace: Traceback) -> Traceback:
        """A line may name only the pid; another line of the same process named the rank."""
        speaker = trace.speaker
        if speaker.pid is not None and speaker.rank == Rank() and speaker.pid in self._ranks:
            speaker = Speaker(tag=speaker.tag, pid=speaker.pid, rank=self._ranks[speaker.pid], host=speaker.host)
            return msgspec.structs.replace(trace, speaker=speaker)
        return trace

    def _engine(self, traces: list[Traceback]) -> Engine:
        if self._forms.get("vllm"):
            return "vllm"
        if self._forms.get("sglang"):
            return "sglang"
        paths = " ".join(f.file for t in traces[:8] for node in t.chain() for f in node.frames)
        programs = " ".join(
            e.fields.get("program", "") for (_, kind), kept in self._events.items() if kind == "usage-error" for e in kept.items()
        )
        if "/sglang/" in paths or "sglang" in programs:
            return "sglang"
        if "/vllm/" in paths or "vllm" in programs:
            return "vllm"
        if any(self._forms.get(f) for f in ("glog", "rank", "nccl")):
            return "torch"
        return "unknown"


def _intro(before: bytes) -> str:
    return parse(segments(before[-2048:])[-1]).text.strip() if before.strip() else ""


def _judged(trace: Traceback) -> Traceback:
    """The same tree with `victim` set on each exception that only answers another."""

    def judge(node: Traceback | None) -> Traceback | None:
        if node is None:
            return None
        return msgspec.structs.replace(
            node,
            victim=victim_reason(node),
            cause=judge(node.cause),
            context=judge(node.context),
            group=tuple(c for c in map(judge, node.group) if c is not None),
            embedded=tuple(c for c in map(judge, node.embedded) if c is not None),
        )

    return judge(trace) or trace


def _ending(traces: list[Traceback], events: list[Event]) -> Ending:
    """'crashed' if a process died, or reported a death, before anybody gave the order to stop."""
    told = next((e.place for e in events if e.kind == "sigterm"), None)
    deaths = [e.place for e in events if e.kind in _DIED or (e.kind == "victim" and _HURT.search(e.text))]
    deaths += [t.place for t in traces if t.victim is not None]
    if any(told is None or place < told for place in deaths):
        return "crashed"
    if told is not None or any(e.kind == "shutdown" for e in events):
        return "stopped"
    return "running"
