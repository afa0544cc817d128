"""Stack dumps in or beside a log: py-spy's text, its failure on a stopped process, py-spy's JSON, faulthandler's text."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from gpudiag.logs.grammar import rank_of
from gpudiag.model.decoding import decode_json
from gpudiag.model.log import NOBODY, DumpedThread, Place, Speaker, StackDump, TraceFrame

MAX_THREADS: Final = 256
MAX_FRAMES: Final = 200
MAX_JSON_BYTES: Final = 8 << 20

_PROCESS: Final = re.compile(r"^Process (\d{1,9}): (.{1,4000})$")
_THREAD: Final = re.compile(r'^Thread (?:0x)?[0-9A-Fa-f]{1,18} \(([\w+]{1,30})\)(?:: "(.{0,100})")?$')
_FRAME: Final = re.compile(r"^ {4}(.{1,300}) \((.{1,1000}?)(?::(\d{1,9}))?\)$")
_FAILED: Final = re.compile(r"(?:unexpected waitpid result .*|PtraceEvent\()Pid\((\d{1,9})\), (SIG\w+)")
_FAULT_THREAD: Final = re.compile(
    r"^(Current thread|Thread) 0x[0-9a-f]{1,18}(?: \[(.{0,100})\])?(?: \(most recent call first\))?:"
)
_FAULT_FRAME: Final = re.compile(r'^  File "([^"]{1,1000})", line (\d{1,9}) in (.{1,300})$')
_TITLE_ROLE: Final = re.compile(r"(?:VLLM::|sglang::)(\S{1,60})")


class DumpReader:
    """Collects one dump after another from lines; `listening` while a dump is being read."""

    def __init__(self) -> None:
        self._tool: Literal["py-spy", "faulthandler"] | None = None
        self._place = Place(source=0, number=0)
        self._pid: int | None = None
        self._title = ""
        self._reason = ""
        self._stopped = False
        self._speaker: Speaker = NOBODY
        self._threads: list[tuple[str, bool, list[TraceFrame]]] = []
        self._idle = 0

    @property
    def listening(self) -> bool:
        return self._tool is not None

    def feed(self, text: str, place: Place, speaker: Speaker) -> list[StackDump]:
        done: list[StackDump] = []
        if self._begin(text, place, speaker, done) or self._tool is None:
            return done
        self._idle += 1
        if self._body(text):
            self._idle = 0
        elif self._idle > 40:
            done.extend(self.flush())
        return done

    def flush(self) -> list[StackDump]:
        tool, self._tool = self._tool, None
        if tool is None or not (self._threads or self._stopped or self._reason):
            return []
        threads = tuple(DumpedThread(name=n, active=a, frames=tuple(f)) for n, a, f in self._threads if f)
        return [
            StackDump(
                tool=tool,
                place=self._place,
                pid=self._pid,
                title=self._title.strip(),
                speaker=self._speaker,
                threads=threads,
                stopped=self._stopped,
                reason=self._reason,
            )
        ]

    def _begin(self, text: str, place: Place, speaker: Speaker, done: list[StackDump]) -> bool:
        process = _PROCESS.match(text) if text.startswith("Process ") else None
        if process:
            done.extend(self.flush())
            title = process.group(2).strip()
            role = _TITLE_ROLE.search(title)
            named = Speaker(
                tag=role.group(1) if role else "", pid=int(process.group(1)), rank=rank_of(role.group(1)) if role else rank_of("")
            )
            self._start("py-spy", place, named, int(process.group(1)), title)
            return True
        if text.startswith("Fatal Python error: "):
            done.extend(self.flush())
            self._start("faulthandler", place, speaker, speaker.pid, "")
            self._reason = text[:200]
            return True
        if self._tool is None and _FAULT_THREAD.match(text):
            self._start("faulthandler", place, speaker, speaker.pid, "")
            self._body(text)
            return True
        return False

    def _start(
        self, tool: Literal["py-spy", "faulthandler"], place: Place, speaker: Speaker, pid: int | None, title: str
    ) -> None:
        self._tool, self._place, self._speaker, self._pid, self._title = tool, place, speaker, pid, title[:300]
        self._threads, self._stopped, self._reason, self._idle = [], False, "", 0

    def _body(self, text: str) -> bool:
        failed = _FAILED.search(text)
        if failed and failed.group(2) in ("SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"):
            self._stopped = True
            return True
        pattern = _THREAD.match(text) if self._tool == "py-spy" else _FAULT_THREAD.match(text)
        if pattern and len(self._threads) < MAX_THREADS:
            name = pattern.group(2) or pattern.group(1)
            active = pattern.group(1).startswith("active") or pattern.group(1) == "Current thread"
            self._threads.append((name, active, []))
            return True
        frame = (_FRAME if self._tool == "py-spy" else _FAULT_FRAME).match(text)
        if frame is None or not self._threads:
            return False
        frames = self._threads[-1][2]
        if len(frames) < MAX_FRAMES:
            if self._tool == "py-spy":
                frames.append(TraceFrame(file=frame.group(2), line=int(frame.group(3) or 0), function=frame.group(1)))
            else:
                frames.append(TraceFrame(file=frame.group(1), line=int(frame.group(2)), function=frame.group(3)))
        return True


class _JsonFrame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _JsonThread(msgspec.Struct):
    pid: int
    frames: list[_JsonFrame]
    thread_name: str | None = None
    active: bool = False


def from_json(data: bytes, source: int) -> StackDump | None:
    """py-spy's `dump --json`, or None if `data` is something else."""
    if len(data) > MAX_JSON_BYTES or not data.lstrip().startswith(b"["):
        return None
    try:
        threads = decode_json(data, list[_JsonThread])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not threads:
        return None
    shown = tuple(
        DumpedThread(
            name=t.thread_name or "",
            active=t.active,
            frames=tuple(TraceFrame(file=f.filename, line=f.line, function=f.name) for f in t.frames[:MAX_FRAMES]),
        )
        for t in threads[:MAX_THREADS]
    )
    pid = threads[0].pid
    return StackDump(
        tool="py-spy", place=Place(source=source, number=1), pid=pid, title="", speaker=Speaker(pid=pid), threads=shown
    )
