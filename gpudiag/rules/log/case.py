"""One failure in its surroundings: what every rule on logs is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from gpudiag.model.log import NOBODY, Event, LogFacts, Place, Speaker, Traceback, TraceFrame
from gpudiag.rules.base import Rule

FailureKind = Literal["exception", "event", "hang", "victim"]


class Failure(Struct, frozen=True, kw_only=True):
    """Something that went wrong, in the place where the log tells it.

    `exception`: a traceback that may be a cause; `event`: a line that may be one; `hang`: the first sign that ranks wait
    for each other; `victim`: nothing but answers to somebody else's failure.
    """

    kind: FailureKind
    place: Place
    speaker: Speaker = NOBODY
    trace: Traceback | None = None
    event: Event | None = None


class LogCase(Struct, frozen=True, kw_only=True):
    """The failure to be judged, and everything else the logs hold."""

    facts: LogFacts
    failure: Failure

    def exceptions(self) -> Iterator[Traceback]:
        """The exceptions of this failure that may be causes, deepest first.

        A line that tells of an error without a traceback counts as an exception without class and frames, so that
        one pattern judges both.
        """
        failure = self.failure
        if failure.trace is not None:
            yield from (node for node in failure.trace.chain() if node.victim is None and node.exception)
        elif failure.event is not None and failure.event.kind in TELLING:
            event = failure.event
            yield Traceback(
                exception="", message=event.text, frames=(), place=event.place, end=event.place, speaker=event.speaker
            )

    def match(self, pattern: re.Pattern[str]) -> Hit | None:
        """The deepest exception whose class and message `pattern` finds."""
        for node in self.exceptions():
            found = pattern.search(told(node))
            if found is not None:
                return Hit(node=node, found=found)
        return None


class Hit(Struct, frozen=True, kw_only=True):
    """An exception and what a pattern found in it."""

    node: Traceback
    found: re.Match[str]

    def get(self, name: str) -> str:
        """A named group, or '' if it took no part."""
        return self.found.groupdict().get(name) or ""


TELLING = frozenset({"library", "address-in-use", "error-line", "nccl-warn", "nccl-info"})
"""Kinds of lines that carry the text of an error."""

_TOLD_CHARS = 8000
_LINE_CHARS = 600

LogRule = Rule[LogCase]
Evaluate = Callable[[LogCase], Iterable[object]]


def told(node: Traceback) -> str:
    """Class and message as one text, bounded in all and line by line: rules search it with many patterns."""
    if len(node.message) <= _LINE_CHARS:
        return f"{node.exception}: {node.message}"
    return f"{node.exception}: " + "\n".join(line[:_LINE_CHARS] for line in node.message[:_TOLD_CHARS].split("\n"))


_LIBRARY = re.compile(
    r"^<|/importlib/|/torch/(?:nn/modules/module|_ops|utils/|distributed/|cuda/__init__|_compile|_dynamo/|_inductor/|autograd/)|/huggingface_hub/|/pydantic|/safetensors/"
    r"|/triton/(?:runtime|compiler|language|backends)/|/uvloop/|^uvloop/|/typing_extensions\.py|/ray/_private/|/transformers/(?:utils/|configuration_utils|models/auto/|tokenization_)|/lib/python3\.\d+/(?!site-packages/|dist-packages/)"
)


def blamed_frame(node: Traceback) -> TraceFrame | None:
    """The frame to look at: the innermost one outside the interpreter and the libraries that only pass a call on.

    A SyntaxError is in the line it names, whatever file that is.
    """
    real = [f for f in node.frames if not f.file.startswith("<")]
    if not real:
        return None
    if node.name in SYNTAX_ERRORS:
        return real[-1]
    return next((f for f in reversed(real) if not _LIBRARY.search(f.file)), real[-1])


def telling_node(trace: Traceback | None, node: Traceback) -> Traceback:
    """The exception whose frames to show for `node`.

    An exception that was caught and raised again keeps only the frames below the handler; if those all belong to
    libraries, the one that was raised from it says where the server stood.
    """
    if trace is None or node.name in SYNTAX_ERRORS:
        return node
    chain = list(trace.chain())
    later = chain[chain.index(node) :] if node in chain else [node]
    return next((n for n in later if any(not _LIBRARY.search(f.file) for f in n.frames)), node)


SYNTAX_ERRORS = frozenset({"SyntaxError", "IndentationError", "TabError"})


def lost_library(file: str) -> bool:
    """Whether a file belongs to the interpreter or to a library that only passes a call on."""
    return bool(_LIBRARY.search(file))
