"""Tracebacks out of a stream of lines: taken apart by process, with their chains, groups and embedded tracebacks as a tree."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.logs.grammar import Prefix
from gpudiag.logs.trace_node import MAX_CHILDREN, Node
from gpudiag.model.log import Place, Speaker, Traceback

HEADER: Final = "Traceback (most recent call last):"
MAX_OPEN: Final = 64
_MAX_UNNAMED: Final = 16
"""Tracebacks without a prefix that may be open at once."""
_GROUP_DEPTH: Final = 16
_IDLE_LINES: Final = 400
"""Lines of other writers after which an unfinished traceback is given up."""
_DONE_LINES: Final = 40
"""Lines of other writers after which a traceback that has its exception line is taken as complete."""

_GROUP_HEADER: Final = re.compile(r"^(\s*)\+ Exception Group Traceback \(most recent call last\):")
_GROUP_MEMBER: Final = re.compile(r"^(\s*)\+-(\+-)?-{3,}(?: (\d+|\.\.\.) -*)?$")
_GROUP_LINE: Final = re.compile(r"^(\s*)\| ?(.*)$")
_FRAME: Final = re.compile(r'^\s*File "([^"\n]{1,1000})", line (\d{1,9})(?:, in (.{1,300}))?$')
_EXCEPTION: Final = re.compile(r"^((?:[A-Za-z_]\w{0,100}\.){0,12}[A-Za-z_]\w{0,100})(\([\w., ]{1,80}\))?(?:: ?(.*))?$")
_LEVELS: Final = frozenset({"INFO", "WARNING", "ERROR", "DEBUG", "CRITICAL", "NOTE", "FATAL", "TRACE"})
_LINKS: Final = {
    "The above exception was the direct cause of the following exception:": "cause",
    "During handling of the above exception, another exception occurred:": "context",
}
_CARET: Final = re.compile(r"^\s*[~^ ]*[~^][~^ ]*$")


class Open:
    """One traceback that is being read. `key` tells its lines from those of other writers."""

    def __init__(self, key: tuple[object, ...], place: Place, speaker: Speaker, intro: str) -> None:
        self.key = key
        self.place = place
        self.speaker = speaker
        self.intro = intro
        self.stack: list[Node] = [Node()]
        """The traceback and, inside its message, the embedded one that is being read."""
        self.link: str | None = None
        self.blank = False
        self.idle = 0
        self.end = place
        self.groups: list[tuple[int, Node]] = []

    @property
    def node(self) -> Node:
        return self.stack[-1]

    def finish(self) -> Traceback:
        return self.stack[0].freeze(self.place, self.end, self.speaker, self.intro)


class Assembler:
    """Feed it every line while `listening`; it hands back tracebacks as they end."""

    def __init__(self) -> None:
        self._open: list[Open] = []
        self._before: dict[tuple[object, ...], str] = {}

    @property
    def listening(self) -> bool:
        return bool(self._open)

    def feed(self, place: Place, prefix: Prefix, before: str = "") -> list[Traceback]:
        """Take one line; `before` is the text of the line ahead of it, used as the introduction of a new traceback."""
        done: list[Traceback] = []
        key = _key(prefix)
        text = prefix.text
        before = before or self._before.get(key, "")
        taken = self._offer(key, text, place, prefix, done)
        if not taken:
            at = text.find(HEADER)
            if at >= 0 and "Exception Group" not in text:
                self._start(key, place, prefix, text[:at].strip() or before)
                taken = True
            elif _GROUP_HEADER.match(text):
                fresh = self._start(key, place, prefix, before)
                fresh.groups.append((text.index("+"), fresh.node))
                taken = True
        for other in list(self._open):
            if other.key == key and taken:
                continue
            other.idle += 1
            if other.idle > (_DONE_LINES if other.node.exception else _IDLE_LINES):
                self._close(other, done)
        if len(self._before) >= MAX_OPEN * 4:
            self._before.clear()
        self._before[key] = text[:200].strip()
        while len(self._open) > MAX_OPEN:
            self._close(self._open[0], done)
        same = [t for t in self._open if t.key == _PLAIN]
        if len(same) > _MAX_UNNAMED:
            self._close(same[0], done)
        return done

    def flush(self) -> list[Traceback]:
        """End of the source: everything still open is complete or cut."""
        done: list[Traceback] = []
        for other in list(self._open):
            self._close(other, done)
        self._before.clear()
        return done

    def _start(self, key: tuple[object, ...], place: Place, prefix: Prefix, intro: str) -> Open:
        # SGLang and torch prefix only the first line of a traceback, so what follows comes without a prefix.
        key = _PLAIN if prefix.form in _FIRST_LINE_ONLY else key
        fresh = Open(key, place, prefix.speaker, intro[:500])
        fresh.groups = []
        self._open.append(fresh)
        return fresh

    def _close(self, trace: Open, done: list[Traceback]) -> None:
        self._open.remove(trace)
        frozen = trace.finish()
        if frozen.frames or frozen.exception:
            done.append(frozen)

    def _offer(self, key: tuple[object, ...], text: str, place: Place, prefix: Prefix, done: list[Traceback]) -> bool:
        # A message is written in one piece: behind the empty line that ends it only a chain's next link may follow.
        for trace in [t for t in self._open if t.blank and t.key == _PLAIN and text.strip() not in _LINKS and text.strip()]:
            if not trace.node.quotes(text):
                self._close(trace, done)
        mine = [t for t in self._open if t.key == key]
        if prefix.form in _FIRST_LINE_ONLY:
            # A new log call of the same writer ends what it was printing before.
            for trace in [t for t in self._open if t.key == _PLAIN and t.node.exception and t.speaker == prefix.speaker]:
                self._close(trace, done)
            return False
        if not mine:
            return False
        for trace in _by_need(mine, text):
            took = _take(trace, text, follows=place.source == trace.end.source and place.number - trace.end.number <= 1)
            if took == "yes":
                trace.end = place
                trace.idle = 0
                return True
            if took == "end":
                self._close(trace, done)
        return False


_PLAIN: Final[tuple[object, ...]] = ("plain",)
_FIRST_LINE_ONLY: Final = frozenset({"sglang", "glog", "logging", "uvicorn", "nccl", "kernel"})


def _key(prefix: Prefix) -> tuple[object, ...]:
    if prefix.form in ("vllm", "tag", "rank"):
        return (prefix.form, prefix.speaker.tag, prefix.speaker.pid, prefix.speaker.rank.global_, prefix.module)
    return _PLAIN


def _by_need(traces: list[Open], text: str) -> list[Open]:
    """Order the tracebacks that may own an unprefixed line, the likeliest first.

    When several processes print at once, a frame belongs to the traceback that has the fewest, and a source line to the
    one whose last frame has none yet.
    """
    if len(traces) == 1:
        return traces
    if _FRAME.match(text):
        return sorted(traces, key=lambda t: (bool(t.node.exception), len(t.node.frames)))
    if text[:4] == "    ":
        return sorted(traces, key=lambda t: (not t.node.wants_source, bool(t.node.exception)))
    return sorted(traces, key=lambda t: (bool(t.node.exception), -len(t.node.frames)))


def _take(trace: Open, text: str, *, follows: bool) -> str:
    """'yes' if the line belongs to `trace`, 'no' if not, 'end' if it shows that the traceback is over."""
    if trace.groups:
        return _take_group(trace, text)
    node = trace.node
    if not node.exception:
        return "yes" if _frames(node, text) else "no"
    return _message(trace, node, text, follows=follows)


def _frames(node: Node, text: str) -> bool:
    frame = _FRAME.match(text)
    if frame:
        node.add_frame(frame.group(1), int(frame.group(2)), frame.group(3) or "")
        return True
    if text[:1] in (" ", "\t"):
        stripped = text.strip()
        if not _CARET.match(text) and not stripped.startswith("[Previous line repeated"):
            node.add_source(stripped)
        return bool(node.frames)
    if not text.strip():
        return False
    found = _EXCEPTION.match(text)
    if found and found.group(1) not in _LEVELS and (node.frames or found.group(3) is not None or "Error" in text):
        node.exception = found.group(1) + (found.group(2) or "")
        node.add_message(found.group(3) or "")
        return True
    return False


def _message(trace: Open, node: Node, text: str, *, follows: bool) -> str:
    stripped = text.strip()
    link = _LINKS.get(stripped)
    if link is not None:
        trace.link = link
        trace.blank = False
        return "yes"
    if text.lstrip().startswith(HEADER):
        return _next_header(trace, node)
    if trace.link is not None:
        return "yes" if not stripped else "end"
    if not stripped:
        trace.blank = True
        return "yes"
    if stripped == '"""' and len(trace.stack) > 1:
        trace.stack.pop()
        trace.blank = False
        return "yes"
    tagged = trace.key != _PLAIN
    quoted = node.quotes(text)
    if trace.blank and not tagged and not quoted:
        return "end"
    if not tagged and not quoted and len(trace.stack) == 1 and not node.more_expected(text, follows=follows):
        return "end"
    if trace.blank:
        node.add_message("")
        trace.blank = False
    if node.ray_frames(text):
        return "yes"
    node.add_message(text)
    return "yes"


def _next_header(trace: Open, node: Node) -> str:
    trace.blank = False
    if trace.link is not None:
        fresh = Node()
        setattr(fresh, trace.link, node)
        fresh.shorten()
        trace.stack[-1] = fresh
        trace.link = None
        if len(trace.stack) > 1:
            owner = trace.stack[-2]
            owner.embedded[-1] = fresh
        return "yes"
    if node.announces_embedded():
        fresh = Node()
        node.embedded.append(fresh)
        if len(trace.stack) < 8:
            trace.stack.append(fresh)
        return "yes"
    return "end"


def _take_group(trace: Open, text: str) -> str:
    """Lines of an exception group: each level of nesting stands in its own column of '|'."""
    marker = _GROUP_MEMBER.match(text)
    if marker:
        _group_marker(trace, marker)
        return "yes"
    bar = _GROUP_LINE.match(text)
    if not bar:
        if not text.strip():
            return "yes"
        return "end" if trace.stack[0].exception else "no"
    column, content = len(bar.group(1)), bar.group(2)
    _leave(trace, column + 1)
    level, node = trace.groups[-1]
    inner = content.strip()
    if inner in _LINKS:
        trace.link = _LINKS[inner]
    elif HEADER in content:
        if trace.link is not None and len(trace.groups) > 1:
            fresh = Node()
            setattr(fresh, trace.link, node)
            fresh.shorten()
            trace.groups[-2][1].replace_member(node, fresh)
            trace.groups[-1] = (level, fresh)
        trace.link = None
    elif not node.exception:
        _frames(node, content)
    elif inner:
        node.add_message(content)
    return "yes"


def _group_marker(trace: Open, marker: re.Match[str]) -> None:
    """'+-+--- 1 ---' opens the first member one level deeper, '+--- 2 ---' the next one, '+-----' ends the group."""
    indent, opens, number = len(marker.group(1)), marker.group(2) is not None, marker.group(3)
    column = indent + 2 if opens else indent
    _leave(trace, column)
    if number is None:
        return
    owner = trace.groups[-1][1]
    member = Node()
    if len(owner.group) < MAX_CHILDREN:
        owner.group.append(member)
    if len(trace.groups) < _GROUP_DEPTH:
        trace.groups.append((column, member))


def _leave(trace: Open, column: int) -> None:
    """Go back to the level left of `column`."""
    while len(trace.groups) > 1 and trace.groups[-1][0] >= column:
        trace.groups.pop()
