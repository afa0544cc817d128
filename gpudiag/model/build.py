"""What a source tree of kernels needs to be built."""

from __future__ import annotations

from msgspec import Struct

from gpudiag.model.reading import Reading


class SourceTree(Struct, frozen=True, kw_only=True):
    """A tree with a pyproject.toml, read as text; nothing of it is run.

    `requires` are its build-system.requires, `policies` the CMake policies that it sets (a CMake that is older than a policy
    stops there), `headers` those that its CMake files call for, `missing_headers` the ones that the C++ compiler does not find.
    """

    path: str
    name: str | None
    requires: tuple[str, ...]
    cmake_minimum: str | None
    policies: tuple[str, ...]
    headers: tuple[str, ...]
    missing_headers: Reading[tuple[str, ...]]
