"""What is left of a server in its logs: lines, tracebacks, milestones, events, and the facts drawn from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from gpudiag.model.server import Engine, Rank

NO_RANK = Rank()


class Speaker(Struct, frozen=True, kw_only=True):
    """The process that wrote a line, as far as the line says. `tag` is the engine's word ('Worker_TP1', 'TP0', 'APIServer')."""

    tag: str = ""
    pid: int | None = None
    rank: Rank = NO_RANK
    host: str | None = None

    @property
    def named(self) -> bool:
        return bool(self.tag) or self.pid is not None or self.rank != NO_RANK

    def same_process(self, other: Speaker) -> bool:
        """Whether both lines come from one process; unnamed speakers are never known to be the same."""
        if self.pid is not None and other.pid is not None:
            return self.pid == other.pid
        return self.named and other.named and (self.tag, self.rank) == (other.tag, other.rank)


NOBODY = Speaker()


class Place(Struct, frozen=True, kw_only=True, order=True):
    """Where something stands.

    `clock_s` is the line's own time in seconds since the start of its year (most lines name no year and no time zone,
    so it orders lines and is not Unix time); None where the line names no time.
    """

    source: int
    number: int
    """Line number in the source, from 1."""
    clock_s: float | None = None


class LogLine(Struct, frozen=True, kw_only=True):
    """One line with its prefix taken off. `level` is INFO, WARNING, ERROR ... or None where the line has none."""

    place: Place
    speaker: Speaker
    text: str
    level: str | None = None
    module: str | None = None
    """The prefix's own 'file:line', where there is one: it names the place that logged, not the fault."""


class TraceFrame(Struct, frozen=True, kw_only=True):
    """One frame of a traceback. `line` is 0 where the traceback names none; `source` the text of the line."""

    file: str
    line: int
    function: str
    source: str = ""


class Traceback(Struct, frozen=True, kw_only=True):
    """An exception as it was printed, outermost frame first.

    `cause` is joined by 'direct cause', `context` by 'During handling'; `group` holds the members of an exception group,
    `embedded` the tracebacks found inside the message (a child process whose output was raised again). The frames of a
    SyntaxError end with the offending line itself. `victim` says why this is only an answer to somebody else's failure.
    """

    exception: str
    message: str
    frames: tuple[TraceFrame, ...]
    place: Place
    end: Place
    speaker: Speaker
    intro: str = ""
    """The text before the traceback in the same log call."""
    cause: Traceback | None = None
    context: Traceback | None = None
    group: tuple[Traceback, ...] = ()
    embedded: tuple[Traceback, ...] = ()
    victim: str | None = None
    cut: bool = False
    """The log ended, or the limit was reached, before the exception line."""

    @property
    def name(self) -> str:
        """The exception's class without its module."""
        return self.exception.rpartition(".")[2]

    @property
    def headline(self) -> str:
        """Class and first line of the message."""
        first = self.message.partition("\n")[0]
        return f"{self.exception}: {first}" if first else self.exception

    def chain(self) -> Iterator[Traceback]:
        """This exception and all it came from, deepest first: what stands in the message before what caused the call."""
        for child in (*self.embedded, *self.group, self.cause, self.context):
            if child is not None:
                yield from child.chain()
        yield self


class Milestone(Struct, frozen=True, kw_only=True):
    """A step of start-up or of serving that a process reached. `name` is a short phrase, `order` its place in the sequence."""

    name: str
    order: int
    place: Place
    speaker: Speaker
    text: str = ""


EventKind = Literal[
    "run-start",
    "worker-died",
    "signal",
    "sigterm",
    "oom-kill",
    "xid",
    "native-crash",
    "nccl-warn",
    "nccl-info",
    "collective-timeout",
    "collective-status",
    "watchdog",
    "import-ignored",
    "model-class",
    "usage-error",
    "address-in-use",
    "library",
    "custom-all-reduce",
    "baton",
    "elastic",
    "shutdown",
    "victim",
    "error-line",
]


class Event(Struct, frozen=True, kw_only=True):
    """A line that means something by itself. `fields` holds what was read out of it, all as text."""

    kind: EventKind
    place: Place
    speaker: Speaker
    text: str
    fields: dict[str, str] = {}


class Collective(Struct, frozen=True, kw_only=True):
    """One operation in a flight-recorder dump. `sequence` counts per process group; sizes are element counts as printed."""

    group: str
    sequence: int
    operation: str
    state: str
    input_sizes: str
    dtype: str
    frames: tuple[TraceFrame, ...] = ()
    started: bool = False


class FlightRecord(Struct, frozen=True, kw_only=True):
    """The flight-recorder dump of one rank (torch.distributed, version 2.x). `enqueued` and `completed` are per group."""

    rank: int
    source: int
    groups: dict[str, tuple[int, ...]]
    enqueued: dict[str, int]
    completed: dict[str, int]
    entries: tuple[Collective, ...]


class DumpedThread(Struct, frozen=True, kw_only=True):
    """One thread of a stack dump, innermost frame first."""

    name: str
    active: bool
    frames: tuple[TraceFrame, ...]


class StackDump(Struct, frozen=True, kw_only=True):
    """A py-spy or faulthandler dump found in or beside the log.

    `stopped` is set when py-spy could not stop the process because it was stopped already (SIGSTOP or a debugger).
    """

    tool: Literal["py-spy", "faulthandler"]
    place: Place
    pid: int | None
    title: str
    speaker: Speaker
    threads: tuple[DumpedThread, ...]
    stopped: bool = False
    reason: str = ""
    """faulthandler's first line: 'Fatal Python error: Segmentation fault'."""


class RasRank(Struct, frozen=True, kw_only=True):
    """One rank of an `ncclras` report that stands out, and how."""

    communicator: str
    rank: int
    problem: str
    counts: dict[str, int] = {}


class Document(Struct, frozen=True, kw_only=True):
    """Text of another tool that was recognised beside or inside the log: nvidia-smi, collect-env, ncclras."""

    kind: Literal["nvidia-smi", "collect-env", "ncclras"]
    place: Place
    fields: dict[str, str]


class LogSource(Struct, frozen=True, kw_only=True):
    """One file or stream that was read. Sizes are of the uncompressed text."""

    name: str
    bytes: int
    lines: int
    notes: tuple[str, ...] = ()


Ending = Literal["crashed", "stopped", "running"]


class LogFacts(Struct, frozen=True, kw_only=True):
    """Everything the rules need from one set of logs. Every collection is bounded; `dropped` counts what did not fit."""

    sources: tuple[LogSource, ...]
    engine: Engine
    version: str | None = None
    root_pid: int | None = None
    world_size: int | None = None
    tensor_parallel: int | None = None
    model: str | None = None
    tracebacks: tuple[Traceback, ...] = ()
    events: tuple[Event, ...] = ()
    milestones: tuple[Milestone, ...] = ()
    dumps: tuple[StackDump, ...] = ()
    flight: tuple[FlightRecord, ...] = ()
    ras: tuple[RasRank, ...] = ()
    documents: tuple[Document, ...] = ()
    tail: tuple[LogLine, ...] = ()
    """The last lines of each source."""
    ending: Ending = "running"
    dropped: int = 0
    unread: tuple[tuple[str, str, str], ...] = ()
    """Sources that could not be read: name, reason, what to type."""

    def of(self, *kinds: EventKind) -> tuple[Event, ...]:
        """The events of these kinds, in the order in which they stand."""
        return tuple(e for e in self.events if e.kind in kinds)


class ServerLog(Struct, frozen=True, kw_only=True):
    """What a running server has written to its standard output and error, as far as they are files.

    `written_at` is the Unix time of the last write. Without `facts`, `reason` says why and `help` what to type.
    """

    root_pid: int
    facts: LogFacts | None = None
    written_at: float | None = None
    reason: str = ""
    help: str = ""
