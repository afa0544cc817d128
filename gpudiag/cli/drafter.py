"""gpudiag drafter: does an EAGLE-3 drafter fit its target and its engine, and why is acceptance low?"""

from __future__ import annotations

from typing import Final

import click

from gpudiag.cli.group import LazyGroup

SUBCOMMANDS: Final[dict[str, tuple[str, str]]] = {
    "check": ("gpudiag.cli.drafter_check", "Do the files fit the target and the installed engine?"),
    "measure": ("gpudiag.cli.drafter_measure", "What does a running server accept, and does it pay?"),
    "plan": ("gpudiag.cli.drafter_plan", "What training a drafter takes, and the commands that do it."),
    "audit-data": ("gpudiag.cli.drafter_audit", "Are these conversations fit to train a drafter on?"),
    "audit-states": ("gpudiag.cli.drafter_states", "Are these hidden states fit to train a drafter on?"),
    "replay": ("gpudiag.cli.drafter_replay", "Is the drafter at fault, or how it is served? Replayed on the server's own texts."),
    "train": ("gpudiag.cli.drafter_train", "Does a short training on a server's own answers lift acceptance?"),
}
"""Module and one line of help of each subcommand. The function has the subcommand's name, with _ for -."""


@click.group(cls=LazyGroup, lazy=SUBCOMMANDS)
def drafter() -> None:
    """Find out whether an EAGLE-3 drafter fits, and what holds its acceptance down."""
