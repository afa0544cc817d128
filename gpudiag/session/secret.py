"""Secrets by their shape: tokens, passwords, credentials in URLs and on command lines."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = (
    r"(?:api[-_]?key|access[-_]?key(?:[-_]?id)?|secret(?:[-_]?(?:access[-_]?)?key)?"
    r"|token|password|passwd|passphrase|credentials?)"
)

SECRET_FLAG: Final = re.compile(rf"--?(?:[A-Za-z0-9]+[-_])*?{_NAME}", re.IGNORECASE)
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
    re.compile(rf"(?<![A-Za-z0-9])(?:[A-Za-z0-9]+[-_])*?{_NAME}[\"']?\s*[=:]\s*[\"']?(?P<secret>[^\s\"'&,;}}]+)", re.IGNORECASE),
    re.compile(rf"(?<!\S)--?(?:[A-Za-z0-9]+[-_])*?{_NAME}\s+(?!-)(?P<secret>\S+)", re.IGNORECASE),
    # Hugging Face: 34 characters after hf_. Shorter ones only with a digit or a capital, or hf_transformers would go.
    re.compile(r"(?<![A-Za-z0-9])(?P<secret>hf_(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[A-Za-z0-9]{20,}))"),
    re.compile(r"(?<![A-Za-z0-9])(?P<secret>sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{12,})"),
    re.compile(r"(?<![A-Za-z0-9])(?P<secret>(?:AKIA|ASIA)[0-9A-Z]{12,})"),
    re.compile(r"(?<![A-Za-z0-9])(?P<secret>(?:gh[pousr]_|github_pat_|glpat-|nvapi-|xox[abprs]-)[A-Za-z0-9_-]{12,})"),
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
