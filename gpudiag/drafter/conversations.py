"""Rows of a file of conversations, one JSON object a line, in the forms that trainers of drafters read and write.

SpecForge 0.2 reads `conversations` (role and content, or from and value) and, already rendered, `text`; speculators 0.9 reads
`conversations` and `messages`; both write `input_ids` with `loss_mask`; engines answer with `messages` of OpenAI's form, the
reasoning apart in `reasoning_content` or `reasoning`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from gpudiag.model.decoding import decode_json

MAX_LINE: Final = 64 << 20
"""Bytes of one line at most; a longer one counts as unreadable, and is not held in memory."""

_ROLES: Final = {
    "human": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "observation": "tool",
}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `reasoning` is what stands apart from `content`; None if the message has no such field."""

    role: str
    content: str
    reasoning: str | None = None
    finish: str | None = None
    calls_tools: bool = False


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file. `problem` says why it is none; `line` counts from 1."""

    line: int
    problem: str | None = None
    turns: tuple[Turn, ...] = ()
    rendered: str | None = None
    ids: tuple[int, ...] | None = None
    mask: tuple[int, ...] | None = None
    finish: str | None = None


def rows(path: Path) -> Iterator[Row]:
    """Every line that is not empty. Raises OSError."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                yield Row(line=number, problem=f"longer than {MAX_LINE >> 20} MiB")
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE)
            elif line.strip():
                yield row(number, line)


def row(number: int, line: bytes) -> Row:
    """One line as a Row, whatever it holds."""
    try:
        value = decode_json(line)
    except msgspec.DecodeError:
        return Row(line=number, problem="no JSON")
    if not isinstance(value, dict):
        return Row(line=number, problem="no JSON object")
    ids, mask = _numbers(value.get("input_ids")), _numbers(value.get("loss_mask"))
    rendered = value.get("text") if isinstance(value.get("text"), str) else None
    turns = _turns(value)
    if ids is None and rendered is None and not turns:
        return Row(line=number, problem="no conversation: none of conversations, messages, prompt and response, text, input_ids")
    return Row(line=number, turns=turns, rendered=rendered, ids=ids, mask=mask, finish=_text(value.get("finish_reason")))


def _turns(value: dict[str, Any]) -> tuple[Turn, ...]:
    for name in ("conversations", "messages", "conversation"):
        listed = value.get(name)
        if isinstance(listed, list):
            return tuple(turn for one in listed if isinstance(one, dict) and (turn := _turn(one)) is not None)
    prompt = value.get("prompt", value.get("instruction", value.get("question")))
    answer = value.get("response", value.get("completion", value.get("output", value.get("answer"))))
    if isinstance(prompt, list):
        asked = [turn for one in prompt if isinstance(one, dict) and (turn := _turn(one)) is not None]
        return (*asked, Turn(role="assistant", content=answer)) if isinstance(answer, str) else tuple(asked)
    if isinstance(prompt, str) and isinstance(answer, str):
        return Turn(role="user", content=prompt), Turn(role="assistant", content=answer)
    return ()


def _turn(one: dict[str, Any]) -> Turn | None:
    role = one.get("role", one.get("from"))
    if not isinstance(role, str):
        return None
    content = one.get("content", one.get("value"))
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    reasoning = one.get("reasoning_content", one.get("reasoning", one.get("thinking")))
    return Turn(
        role=_ROLES.get(role.lower(), role.lower()),
        content=content if isinstance(content, str) else "",
        reasoning=reasoning if isinstance(reasoning, str) else None,
        finish=_text(one.get("finish_reason")),
        calls_tools=bool(one.get("tool_calls")),
    )


def _numbers(value: Any) -> tuple[int, ...] | None:
    """A list of whole numbers, also one that is nested once (a batch of one)."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, list) or not all(isinstance(n, int) for n in value):
        return None
    return tuple(int(n) for n in value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
