"""Secrets by their shape: tokens, passwords, credentials in URLs and on command lines."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = (
    r"(?:(?:api|licen[cs]e)[-_]?key|access[-_]?key(?:[-_]?id)?|(?:client[-_]?)?secret(?:[-_]?(?:access[-_]?)?key)?"
    r"|token|password|passwd|passphrase|credentials?|authorization(?!\s*[=:]\s*[\"']?(?:Bearer|Basic)\b))"
)

_PREFIX: Final = r"(?:[A-Za-z0-9]{1,40}[-_]){0,8}?"
"""Bounded, like every repetition here: the texts are a target's, and a pattern must not take long on any."""

SECRET_FLAG: Final = re.compile(rf"--?{_PREFIX}{_NAME}", re.IGNORECASE)
"""A command-line flag whose values are secret: `--api-key`, `--hf-token`, `--ssl-keyfile-password` ..."""

SECRET_VARIABLE: Final = re.compile(
    r"(?:^|_)(?:API)?(?:KEYS?|TOKEN|SECRETS?|PASS(?:WD|WORD|PHRASE)?|CREDENTIALS?|AUTH)(?:_|$)", re.IGNORECASE
)
"""An environment variable whose value is secret whatever else its name says."""

_SHAPES: Final = (
    # A whole private key goes first: its lines would match nothing below.
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<secret>.*?)(?:-----END|\Z)", re.DOTALL),
    re.compile(r"://(?P<secret>[^\s/@:?#]*:[^\s/@]*)@"),
    re.compile(r"\b(?:Bearer|Basic)\s+(?P<secret>[A-Za-z0-9._~+/=-]{6,})", re.IGNORECASE),
    re.compile(rf"(?<![A-Za-z0-9]){_PREFIX}{_NAME}[\"']?\s*[=:]\s*[\"']?(?P<secret>[^\s\"'&,;}}]+)", re.IGNORECASE),
    # A list of them: api_key=['a', 'b'].
    re.compile(rf"(?<![A-Za-z0-9]){_PREFIX}{_NAME}s?[\"']?\s*[=:]\s*[\[(](?P<secret>[^\])]*)", re.IGNORECASE),
    re.compile(rf"(?<!\S)--?{_PREFIX}{_NAME}\s+(?!-)(?P<secret>\S+)", re.IGNORECASE),
    # Parameters of a URL that let whoever has them in: keys, tokens, signatures of storage services.
    re.compile(
        r"[?&][\w.-]{0,40}?(?:key|token|auth|sig|signature|secret|credential|passwo?r?d|session)[\w.-]{0,40}=(?P<secret>[^\s&#\"'<>]+)",
        re.IGNORECASE,
    ),
    re.compile(r"\b(?:Set-)?Cookie[\"']?\s*:\s*(?P<secret>[^\r\n]+)", re.IGNORECASE),
    re.compile(r"(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/(?P<secret>[^\s\"']+)"),
    # The word says what it is, and what follows is long and no word: 'key 0a1b...', 'token: "eyJ..."'.
    re.compile(
        r"\b(?:keys?|tokens?|secrets?|passwords?|credentials?)\b[\s:='\"]{1,4}(?P<secret>(?=[A-Za-z_+/=-]*\d)[A-Za-z0-9_+/=-]{24,})",
        re.IGNORECASE,
    ),
    # Hugging Face: 34 characters after hf_. Shorter ones only with a digit or a capital, or hf_transformers would go.
    re.compile(r"(?<![A-Za-z0-9])(?P<secret>hf_(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[A-Za-z0-9]{20,}))"),
    re.compile(r"(?<![A-Za-z0-9])(?P<secret>sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{12,})"),
    re.compile(r"(?<![A-Za-z0-9])(?P<secret>(?:AKIA|ASIA)[0-9A-Z]{12,})"),
    re.compile(
        r"(?<![A-Za-z0-9])(?P<secret>(?:gh[pousr]_|github_pat_|glpat-|nvapi-|xox[abeprs]-|[rs]k_(?:live|test)_|AIza|pypi-|dckr_pat_"
        r"|gsk_|r8_|SG\.|npm_)(?=[A-Za-z_.-]*\d)[A-Za-z0-9_.-]{12,}|dapi[0-9a-f]{32})"
    ),
    re.compile(r"(?<![A-Za-z0-9])(?P<secret>eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*)"),
)


def secrets_in(text: str) -> list[tuple[int, int]]:
    """Spans (start, end) of the secrets in a text, in order and without overlap. Text that is a placeholder is no secret."""
    spans = sorted(m.span("secret") for shape in _SHAPES for m in shape.finditer(text))
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def secret_arguments(arguments: list[str]) -> set[int]:
    """Indices of the arguments that follow a secret flag, up to the next flag (vLLM's --api-key takes several)."""
    found: set[int] = set()
    hiding = False
    for index, argument in enumerate(arguments):
        if argument.startswith("-"):
            hiding = SECRET_FLAG.fullmatch(argument) is not None
        elif hiding:
            found.add(index)
    return found


def masked(text: str, stand_in: str) -> str:
    """The text with `stand_in` for what looks like a token, a password or a key."""
    pieces, position = [], 0
    for start, end in secrets_in(text):
        pieces += [text[position:start], stand_in]
        position = end
    return "".join((*pieces, text[position:]))
