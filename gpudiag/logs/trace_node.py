"""One exception while its traceback is being read."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.model.log import Place, Speaker, Traceback, TraceFrame

MAX_FRAMES: Final = 200
MAX_MESSAGE_LINES: Final = 400
MAX_MESSAGE_CHARS: Final = 32_768
MAX_SOURCE_CHARS: Final = 400
MAX_DEPTH: Final = 48
_KEPT_LINKS: Final = 16
MAX_CHILDREN: Final = 32

_TRUSTED_LINES: Final = 8
"""Lines of a message that are believed without a look at what they say, as long as nothing comes between them."""
_PROGRESS: Final = re.compile(r"\d%\||it/s|s/it\]|% Completed")

_TRITON_PLACE: Final = re.compile(r"at \d+:\d+:")
_TRITON_END: Final = re.compile(r"\w+(?:Error|Exception)\(")
_RAY_FRAME: Final = re.compile(r'^  File "([^"\n]{1,1000})", line (\d{1,9}), in (.{1,300})$')
_DETAIL: Final = re.compile(
    r"^(?:\s|\[|\(|\{|\}|\)|[-*#>]|\d+[.)] |'|\"|<|\w+ error\b|\[stderr\]|(?:Searched|"
    r"Please|Search for|For debugging|Compile with|CUDA kernel|To fix|Device-side|"
    r"Note|Hint|Expected|Got|Exception raised from|frame #|If |Last error:|"
    r"ncclUnhandled|ncclSystem|ncclInternal|ncclRemote|ncclInvalid|\w+ = ))"
)
"""What the second and later lines of a message look like when no prefix says whose they are."""


class Node:
    """A mutable Traceback. The tree under it is kept small: frames, message and children are all bounded."""

    def __init__(self) -> None:
        self.exception = ""
        self.frames: list[TraceFrame] = []
        self.message: list[str] = []
        self.cause: Node | None = None
        self.context: Node | None = None
        self.group: list[Node] = []
        self.embedded: list[Node] = []
        self._chars = 0

    @property
    def wants_source(self) -> bool:
        return bool(self.frames) and not self.frames[-1].source

    def add_frame(self, file: str, line: int, function: str) -> None:
        frame = TraceFrame(file=file, line=line, function=function)
        if len(self.frames) < MAX_FRAMES:
            self.frames.append(frame)
        else:
            # The innermost frames decide, so a very deep stack loses its middle.
            del self.frames[MAX_FRAMES // 2]
            self.frames.append(frame)

    def add_source(self, text: str) -> None:
        if self.wants_source:
            last = self.frames[-1]
            self.frames[-1] = TraceFrame(file=last.file, line=last.line, function=last.function, source=text[:MAX_SOURCE_CHARS])

    def add_message(self, text: str) -> None:
        if len(self.message) < MAX_MESSAGE_LINES and self._chars < MAX_MESSAGE_CHARS:
            text = text[: MAX_MESSAGE_CHARS - self._chars]
            self.message.append(text)
            self._chars += len(text)

    def announces_embedded(self) -> bool:
        """Whether the message so far leads up to another traceback: it ends in a colon, is empty, or opens triple quotes."""
        if len(self.embedded) >= MAX_CHILDREN:
            return False
        first = self.message[0].rstrip() if self.message else ""
        last = next((m.strip() for m in reversed(self.message) if m.strip()), "")
        return not first or first.endswith(":") or last == '"""' or last.endswith(":") or "subprocess" in first

    def quotes(self, text: str) -> bool:
        """Whether a line is of a kernel's source in Triton's message, empty lines and all, or of the error that closes it.

        CompilationError.format in triton/compiler/errors.py, 3.6.
        """
        if not self.exception.endswith("CompilationError") or not self.message or not _TRITON_PLACE.match(self.message[0]):
            return False
        return text[:1] in (" ", "\t") or _TRITON_END.match(text) is not None

    def more_expected(self, text: str, *, follows: bool) -> bool:
        """Whether an unprefixed line still looks like part of this message. `follows`: it stands right behind it."""
        if follows and len(self.message) < _TRUSTED_LINES and not _PROGRESS.search(text):
            return True
        first = self.message[0].rstrip() if self.message else ""
        return not first or first.endswith((":", ",", "(", '"""')) or bool(_DETAIL.match(text)) or len(self.message) > 1

    def ray_frames(self, text: str) -> bool:
        """Ray prints the worker's frames inside the message without a header; they lead to the cause."""
        frame = _RAY_FRAME.match(text)
        if frame is None or not any("ray::" in m for m in self.message):
            return False
        if not self.embedded:
            self.embedded.append(Node())
            self.embedded[0].exception = self.exception.partition("(")[2].rstrip(")") or self.exception
        self.embedded[0].add_frame(frame.group(1), int(frame.group(2)), frame.group(3))
        return True

    def shorten(self) -> None:
        """Keep the newest links of a very long chain and its oldest exception, which is the one that counts."""
        node: Node | None = self
        for _ in range(_KEPT_LINKS):
            node = node and (node.cause or node.context)
        if node is None:
            return
        oldest = node
        while (older := oldest.cause or oldest.context) is not None:
            oldest = older
        if oldest is not node:
            node.cause, node.context = oldest, None

    def replace_member(self, old: Node, new: Node) -> None:
        self.group = [new if m is old else m for m in self.group]

    def freeze(self, place: Place, end: Place, speaker: Speaker, intro: str = "", depth: int = 0) -> Traceback:
        """The finished tree. Deeper than MAX_DEPTH it is cut."""

        def child(node: Node | None) -> Traceback | None:
            return node.freeze(place, end, speaker, "", depth + 1) if node is not None and depth < MAX_DEPTH else None

        message = "\n".join(self.message).rstrip()
        return Traceback(
            exception=self.exception,
            message=message,
            frames=tuple(self.frames),
            place=place,
            end=end,
            speaker=speaker,
            intro=intro,
            cause=child(self.cause),
            context=child(self.context),
            group=tuple(c for c in map(child, self.group[:MAX_CHILDREN]) if c is not None),
            embedded=tuple(c for c in map(child, self.embedded[:MAX_CHILDREN]) if c is not None),
            cut=not self.exception,
        )
