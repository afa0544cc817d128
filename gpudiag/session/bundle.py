"""The format of a recording: one zip file with members of known names.

manifest.json: format, who wrote it and when, whether it is redacted, and the SHA-256 of every other member.
observation.json: the looks at the server. redactions.json: what was taken out. logs/server-PID.json: what was read
out of the log of the server with this root (model.log.ServerLog); never the log itself, which may hold prompts.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

RECORDING_SCHEMA: Final = "gpudiag.recording/1"
SUFFIX: Final = ".gpudiag"

MANIFEST: Final = "manifest.json"
OBSERVATION: Final = "observation.json"
REDACTIONS: Final = "redactions.json"
LOG: Final = re.compile(r"logs/server-\d{1,9}\.json")

MEMBER: Final = re.compile(r"manifest\.json|observation\.json|redactions\.json|logs/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""Names that a member may have. Nothing is ever unpacked to disk, but a name that looks like a path is no recording of ours."""

MAX_FILE_BYTES: Final = 256 << 20
MAX_UNPACKED_BYTES: Final = 256 << 20
MAX_MEMBERS: Final = 64
MAX_RATIO: Final = 200
RATIO_APPLIES_FROM_BYTES: Final = 32 << 20
"""Looks at 64 alike ranks compress by more than 100 to one; below this size an odd ratio can do no harm."""


class Content(Struct, frozen=True, kw_only=True):
    """A member other than the manifest. `sha256` is in hexadecimal, over the unpacked bytes."""

    sha256: str
    size_bytes: int


class Manifest(Struct, frozen=True, kw_only=True):
    """What a recording says about itself. `command` is the gpudiag command that wrote it."""

    gpudiag: str
    created_at: str
    """RFC 3339, UTC."""
    redacted: bool
    command: str
    contents: dict[str, Content]
    schema: str = RECORDING_SCHEMA
