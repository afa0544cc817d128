"""Collects argv and environment of a launch plan, each with its reason, and never overrides what the user has said himself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpudiag.engines.words import Given, taken_apart, value_of
from gpudiag.model.flags import FlagTable
from gpudiag.model.run import Setting


class PlanBuilder:
    """A launch plan in the making. `table` None: nobody knows what the engine knows."""

    def __init__(self, table: FlagTable | None, words: Sequence[str], variables: Mapping[str, str]) -> None:
        self.table = table
        self.words = tuple(words)
        self.given: tuple[Given, ...] = taken_apart(words, table)
        self.variables = variables
        self.argv: list[str] = []
        self.environment: dict[str, str] = {}
        self.settings: list[Setting] = []
        self.notes: list[str] = []
        self.directories: list[str] = []

    def option(
        self,
        names: Sequence[str],
        value: str | None,
        why: str,
        source: str,
        *,
        switch: str | None = None,
        required: bool = True,
    ) -> bool:
        """Add an option unless the user gave it; `value` None is an option without one.

        An option that the installed version does not know is left out if it is not `required`. Otherwise it goes in, and
        the check of flags refuses the start.
        """
        said = value_of(self.given, names)
        if said is not None:
            self.settings.append(Setting(name=names[0], value=said, why=f"yours, kept; {why}", source="command line"))
            return False
        name = names[0] if self.table is None else self.table.first(*names)
        if name is None and not required:
            where = f"{self.table.engine} {self.table.version or ''}".rstrip() if self.table else "the engine"
            self.settings.append(Setting(name=names[0], value="", why=f"left out: {where} has no such option", source=source))
            return False
        if name is None:
            self.notes.append(f"{names[0]}, which this version does not have, comes from {source}")
        name = name or names[0]
        self.argv += [name] if value is None else [name, value]
        self.settings.append(Setting(name=name, value=value or "", why=why, source=source, switch=switch))
        return True

    def variable(self, name: str, value: str, why: str, source: str, *, switch: str | None = None) -> bool:
        """Set an environment variable unless the user has set it, or gpudiag itself did before."""
        if name in self.environment:
            return False
        if name in self.variables:
            self.settings.append(
                Setting(name=name, value=self.variables[name], why=f"yours, kept; {why}", source="your environment")
            )
            return False
        self.environment[name] = value
        self.settings.append(Setting(name=name, value=value, why=why, source=source, switch=switch))
        return True

    def replace_variable(self, name: str, value: str, why: str, source: str, *, switch: str | None = None) -> None:
        """Set a variable that the user has too: a list to which something is added."""
        self.environment[name] = value
        self.settings.append(Setting(name=name, value=value, why=why, source=source, switch=switch))

    def says(self, names: Sequence[str]) -> str | None:
        """What the user, or what was added so far, says for an option; None if nobody does."""
        said = value_of(self.given, names)
        return said if said is not None else value_of(taken_apart(self.argv, self.table), names)
