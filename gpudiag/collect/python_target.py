"""Whether gpudiag can read the objects of a target's Python."""

from __future__ import annotations

from gpudiag.collect.pylayout import Layout, layout_of, parse_version


class UnsupportedPythonError(ValueError):
    """The objects of this Python version cannot be read: gpudiag does not know where it keeps what."""


def supported_layout(python_version: str | None) -> Layout:
    """The layout for a version such as '3.12' or '3.12.1'. Raises UnsupportedPythonError."""
    version = parse_version(python_version)
    layout = layout_of(version) if version else None
    if layout is None:
        raise UnsupportedPythonError(
            f"locks and files are known for CPython 3.11 to 3.14 with a GIL, not for {python_version or 'an unknown version'}"
        )
    return layout
