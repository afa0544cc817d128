"""Groups of the roles that engines give to their processes."""

from __future__ import annotations

from typing import Final

FRONT: Final = frozenset({"frontend", "root", "server", "router", "tokenizer"})
"""Processes that accept clients."""
PATH: Final = frozenset({"engine-core", "detokenizer", "controller", "coordinator", "worker", "scheduler"})
"""Processes that a request passes behind the door."""
BYSTANDERS: Final = frozenset({"tracker", "helper", "compiler", "dead", "starting"})
"""Processes that hold descriptors by inheritance, and that no request passes."""
