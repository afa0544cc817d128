"""How a place in a log is written."""

from __future__ import annotations

from gpudiag.model.log import LogFacts, Place


def at(facts: LogFacts, place: Place) -> str:
    """'server.log:120'."""
    name = facts.sources[place.source].name if place.source < len(facts.sources) else "log"
    return f"{name.rpartition('/')[2]}:{place.number}"
