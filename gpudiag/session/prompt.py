"""What people asked a server and what it answered, by the shape in which engines and clients print it.

vLLM 0.32 logs `prompt: '...'` with --enable-log-requests, SGLang 0.5.23 `text='...'` with --log-requests; both print their
request objects in messages of exceptions. Token ids are the same text in another form.
"""

from __future__ import annotations

import re
from typing import Final

_KEY: Final = (
    r"(?:prompt|prompt_text|system_prompt|user_prompt|text|input_text|input|inputs|content|completion|generated_text|output_text"
    r"|reasoning_content|query|instruction)"
)
_QUOTED: Final = re.compile(
    rf"(?<![A-Za-z0-9_]){_KEY}\\*[\"']?\s*[=:]\s*b?(?:\[\s*)?\\*(?P<quote>[\"'])(?P<prompt>(?:\\.|(?!(?P=quote)).)+)", re.DOTALL
)
"""The value is a quoted string, which may be cut off. Words after an unquoted `text:` are prose."""

_TOKENS: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:prompt_token_ids|input_ids|output_ids|token_ids|prompt_tokens|new_token_ids)[\"']?\s*[=:]\s*"
    r"(?:array\(\s*)?[\[(](?P<prompt>[\d,\s]+)"
)
_HINTS: Final = ("prompt", "text", "input", "content", "completion", "query", "instruction", "token_ids", "_ids")


def prompts_in(text: str) -> list[tuple[int, int]]:
    """Spans (start, end) of prompts, answers and their token ids in a text."""
    if not any(hint in text for hint in _HINTS):
        return []
    return [m.span("prompt") for shape in (_QUOTED, _TOKENS) for m in shape.finditer(text)]
