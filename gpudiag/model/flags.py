"""The options that an installed engine takes, as its own argument parser holds them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Flag(Struct, frozen=True, kw_only=True):
    """One option. `names` are all its spellings; `kind` is the name of the function that converts its value."""

    names: tuple[str, ...]
    takes: Literal["none", "one", "optional", "some"] = "one"
    choices: tuple[str, ...] | None = None
    kind: str = ""
    default: str = ""


class FlagTable(Struct, frozen=True, kw_only=True):
    """All options of one engine's command. `prefixes`: argparse takes any prefix that only one option has."""

    engine: str
    version: str | None
    flags: tuple[Flag, ...]
    prefixes: bool = True
    underscores: bool = False
    dotted: bool = False
    """Whether `--speculative-config.method eagle3` sets a key of a JSON value (vLLM)."""
    variables: tuple[str, ...] = ()
    """Environment variables that were asked about and that the engine knows."""
    recorder: tuple[str, ...] = ()
    """Environment variables that the headers of its torch name; empty without torch's headers."""
    torch: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for flag in self.flags for name in flag.names)

    def find(self, word: str) -> Flag | None:
        """The option that a word of a command line means, as the parser would take it; None if it would refuse it."""
        name = word.partition("=")[0]
        if self.dotted:
            name = name.partition(".")[0]
        if self.underscores and name.startswith("--"):
            name = name.replace("_", "-")
        exact = next((flag for flag in self.flags if name in flag.names), None)
        if exact is not None:
            return exact
        if self.dotted and name.startswith("-O"):
            # -O3 is short for --optimization-level (vLLM, utils/argparse_utils.py 0.32).
            return next((flag for flag in self.flags if "--optimization-level" in flag.names), None)
        if not self.prefixes or not name.startswith("--"):
            return None
        longer = {flag.names for flag in self.flags if any(n.startswith(name) for n in flag.names)}
        return next(flag for flag in self.flags if flag.names in longer) if len(longer) == 1 else None

    def first(self, *names: str) -> str | None:
        """The first of these spellings that the engine has."""
        known = set(self.names)
        return next((name for name in names if name in known), None)
