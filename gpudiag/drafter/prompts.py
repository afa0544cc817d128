"""Prompts to measure with: those of a file, or the small set that comes with gpudiag.

Random tokens would not do: acceptance on them says nothing about acceptance on text.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from gpudiag.errors import UsageError
from gpudiag.model.decoding import decode_json

BUILT_IN: Final = "built in"
MOST_BYTES: Final = 64 << 20
_PLAIN_KEYS: Final = ("prompt", "text", "question", "instruction")
_CHAT_KEYS: Final = ("messages", "conversations")
_ROLES: Final = {"human": "user", "gpt": "assistant"}
_HELP: Final = 'a prompt a line, or JSON lines with "prompt", "text" or "messages"'


class Message(Struct, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: str
    content: str


class Prompt(Struct, frozen=True, kw_only=True):
    """A conversation that ends where the model has to speak. `number` is its place in the file, from 1."""

    number: int
    messages: tuple[Message, ...]
    domain: str | None = None

    @property
    def text(self) -> str:
        """What a model without a chat template gets."""
        return "\n\n".join(message.content for message in self.messages)


def built_in() -> tuple[Prompt, ...]:
    """The set that is shipped: questions, code, sums, summaries, data and other languages, a few of each."""
    body = resources.files("gpudiag.drafter").joinpath("prompts.jsonl").read_bytes()
    return tuple(_json_line(line, number, BUILT_IN) for number, line in enumerate(body.splitlines(), 1))


def read(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a file: JSON lines if its first line is JSON, else a prompt a line. Raises UsageError."""
    try:
        if not path.is_file():
            raise UsageError(f"--prompts {path}: no such file", help=_HELP)
        with path.open("rb") as opened:
            body = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--prompts {path}: {error.strerror}", help=f"ls -l {path}") from error
    if len(body) > MOST_BYTES:
        raise UsageError(f"--prompts {path}: more than {MOST_BYTES >> 20} MiB", help="a hundred prompts are enough: head -n 100")
    lines = [(number, line) for number, line in enumerate(body.splitlines(), 1) if line.strip()]
    if not lines:
        raise UsageError(f"--prompts {path}: the file is empty", help=_HELP)
    if lines[0][1].lstrip()[:1] in (b"{", b'"'):
        return tuple(_json_line(line, number, str(path)) for number, line in lines)
    return tuple(_plain_line(line, number, str(path)) for number, line in lines)


def _plain_line(line: bytes, number: int, name: str) -> Prompt:
    try:
        return Prompt(number=number, messages=(Message(role="user", content=line.decode()),))
    except UnicodeDecodeError:
        raise UsageError(f"{name}:{number}: no UTF-8 text", help=_HELP) from None


def _json_line(line: bytes, number: int, name: str) -> Prompt:
    try:
        entry: Any = decode_json(line)
    except msgspec.DecodeError:
        raise UsageError(f"{name}:{number}: no JSON", help=_HELP) from None
    messages = _messages(entry)
    if not messages:
        raise UsageError(f"{name}:{number}: no prompt in this line", help=_HELP)
    domain = entry.get("domain") or entry.get("category") if isinstance(entry, dict) else None
    return Prompt(number=number, messages=messages, domain=domain[:40] if isinstance(domain, str) else None)


def _messages(entry: Any) -> tuple[Message, ...]:
    """The turns up to the last that is not the model's own."""
    if isinstance(entry, str):
        return (Message(role="user", content=entry),) if entry.strip() else ()
    if not isinstance(entry, dict):
        return ()
    for key in _PLAIN_KEYS:
        if isinstance(entry.get(key), str) and entry[key].strip():
            return (Message(role="user", content=entry[key]),)
    turns: list[Any] = next((entry[key] for key in _CHAT_KEYS if isinstance(entry.get(key), list)), [])
    made = [turn for turn in map(_turn, turns) if turn is not None]
    while made and made[-1].role == "assistant":
        made.pop()
    return tuple(made)


def _turn(turn: Any) -> Message | None:
    if not isinstance(turn, dict):
        return None
    role, content = turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))
    if not isinstance(role, str) or not isinstance(content, str):
        return None
    return Message(role=_ROLES.get(role, role), content=content)
