"""The entry of this package: files, directories or a stream in, LogFacts out. Memory stays constant whatever the size."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable
from typing import IO, Final

from gpudiag.logs import dumps, flight
from gpudiag.logs.builder import Builder
from gpudiag.logs.prefilter import ENDS, MIDDLE, MOST_LINES, MOST_LINES_OF_ALL, MOST_READ_LINES, TRACEBACK, Finder, Hits
from gpudiag.logs.read import MAX_FILES, Tally, UnreadableError, blocks, find_files, is_text, name_of, open_log, unpacked
from gpudiag.model.log import LogFacts, LogSource

HEAD_BYTES: Final = 4 << 20
"""The start of a source, searched for everything."""
TAIL_BYTES: Final = 4 << 20
"""The end of a source, searched for everything once the end is known."""
MAX_DUMP_BYTES: Final = 64 << 20
STDIN: Final = "-"
NO_TEXT: Final = "holds bytes that are no text"


def read_facts(paths: Iterable[str]) -> LogFacts:
    """Read files, directories (their files, in name order) and '-' for standard input.

    Never raises for what it reads: a source that cannot be opened is listed in `unread` with what to type.
    """
    builder = Builder()
    for path in paths:
        if path == STDIN:
            _stdin(builder)
            continue
        files = find_files(path)
        if len(files) >= MAX_FILES:
            builder.unreadable(path, f"holds more than {MAX_FILES} files; the rest was left out", "name the log files themselves")
        for file in files:
            _file(builder, file, asked=file == path)
    return builder.facts()


def is_known(facts: LogFacts) -> bool:
    """Whether anything is a log or a dump: text that is not empty, or bytes in which something was recognised."""
    read = any(s.bytes and NO_TEXT not in s.notes for s in facts.sources)
    return read or bool(facts.engine != "unknown" or facts.tracebacks or facts.events or facts.milestones or facts.documents)


def read_stream(stream: IO[bytes], name: str = "stream") -> LogFacts:
    """Read one open binary stream to its end."""
    builder = Builder()
    scan_text(builder, stream, name)
    return builder.facts()


def _stdin(builder: Builder) -> None:
    """Standard input, decompressed if its first bytes ask for it."""
    name = "standard input"
    stream = sys.stdin.buffer
    try:
        # A peek waits for the first bytes of a pipe; what is typed at a terminal is never an archive.
        head = b"" if stream.isatty() or not isinstance(stream, io.BufferedReader) else stream.peek(8)[:8]
        scan_text(builder, unpacked(stream, head), name)
    except UnreadableError as error:
        builder.unreadable(name, error.reason, error.help)
    except OSError as error:
        builder.unreadable(name, f"cannot read: {error.strerror or error}", "")


def _file(builder: Builder, path: str, *, asked: bool) -> None:
    try:
        if os.path.exists(path) and _other_form(builder, path):
            return
        if not asked and not is_text(path):
            return
        with open_log(path) as stream:
            scan_text(builder, stream, name_of(path))
    except UnreadableError as error:
        builder.unreadable(name_of(path), error.reason, error.help)
    except OSError as error:
        builder.unreadable(name_of(path), f"cannot read: {error.strerror or error}", f"ls -l {path}")


def _other_form(builder: Builder, path: str) -> bool:
    """Flight-recorder dumps and py-spy's JSON, which are no lines."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        # A pipe can be opened only once.
        return False
    with open(path, "rb") as handle:
        head = handle.read(4096)
        recorder = flight.looks_like(head)
        if not recorder and not (head.lstrip()[:1] == b"[" and b'"pid"' in head):
            return False
        data = head + handle.read(MAX_DUMP_BYTES)
    name = name_of(path)
    entry = LogSource(name=name, bytes=len(data), lines=0, notes=("flight-recorder dump" if recorder else "py-spy dump",))
    if recorder:
        record = flight.load(data, name, builder.next_source)
        if record is not None:
            builder.add_flight(record, entry)
        return record is not None
    dump = dumps.from_json(data, builder.next_source)
    if dump is not None:
        builder.add_dump(dump, entry)
    return dump is not None


def scan_text(builder: Builder, stream: IO[bytes], name: str) -> None:
    """Scan one source to its end: both ends for everything, what lies between for all that is not said all the time."""
    tally = Tally()
    scan = _Scan(builder, builder.next_source)
    tired = builder.read > MOST_LINES_OF_ALL
    ends, middle = Finder(ENDS, limit=MOST_LINES if tired else None), Finder(MIDDLE, limit=MOST_LINES)
    if tired:
        ends.leave_out([TRACEBACK])
        middle.leave_out([TRACEBACK])
        scan.follow(False)
    waiting: deque[bytes] = deque()
    held = read = 0
    binary = False
    last = b""
    for block in blocks(stream, tally):
        binary = binary or b"\x00" in block[:4096]
        last = (last + block)[-65_536:] if len(block) < 65_536 else block[-65_536:]
        if tally.bytes <= HEAD_BYTES:
            scan.block(block, ends)
            continue
        waiting.append(block)
        held += len(block)
        while held > TAIL_BYTES and len(waiting) > 1:
            held -= len(waiting[0])
            before = scan.read
            scan.block(waiting.popleft(), middle)
            read += scan.read - before
            if read > MOST_READ_LINES and scan.follows:
                middle.leave_out([TRACEBACK])
                scan.follow(False)
    if not tired:
        scan.follow(True)
    for block in waiting:
        scan.block(block, ends)
    notes = (
        [f"{tally.cut_lines} {'line was' if tally.cut_lines == 1 else 'lines were'} too long and cut"] if tally.cut_lines else []
    )
    if tally.broken:
        notes.append(tally.broken)
    notes += _left_out(middle)
    if binary:
        notes.append(NO_TEXT)
    builder.end_source(LogSource(name=name, bytes=tally.bytes, lines=scan.number - 1, notes=tuple(notes)), last)


def _left_out(middle: Finder) -> list[str]:
    """What was so often in the middle of a log that only its first occurrences and the end of the log count."""
    loud = [f"'{a.decode().strip()}'" for a in middle.left_out if a != TRACEBACK]
    notes = (
        [f"lines with {', '.join(loud)} were too many; between start and end only the first {MOST_LINES} count"] if loud else []
    )
    if TRACEBACK in middle.left_out:
        notes.append(f"lines with tracebacks were too many; between start and end only the first {MOST_READ_LINES} count")
    return notes


class _Scan:
    """Walks blocks, stopping only at lines that matter; counts lines on the way."""

    def __init__(self, builder: Builder, source: int) -> None:
        self._builder = builder
        self._source = source
        self.number = 1
        self.read = 0
        """Lines that were looked at."""
        self.follows = True

    def follow(self, follows: bool) -> None:
        """Whether the lines behind one that matters are read too. What had begun is ended if not."""
        if not follows:
            self._builder.end_open()
        self.follows = follows

    def block(self, block: bytes, finder: Finder) -> None:
        hits = Hits(finder.offsets(block))
        position, size = 0, len(block)
        while position < size:
            before = b""
            if not (self.follows and self._builder.listening):
                hit = hits.after(position)
                if hit < 0:
                    break
                start = block.rfind(b"\n", position, hit) + 1
                if start > position:
                    self.number += block.count(b"\n", position, start)
                    position = start
                if position:
                    before = block[block.rfind(b"\n", 0, position - 1) + 1 : position - 1]
            end = block.find(b"\n", position)
            end = size if end < 0 else end
            self._builder.line(self._source, self.number, block[position:end], before)
            self.read += 1
            self.number += 1
            position = end + 1
        if position < size:
            self.number += block.count(b"\n", position)
