"""The root command. It knows its subcommands by name only, so that --help imports none of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

import click

from gpudiag import __version__

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "attach": ("gpudiag.cli.attach", "Look at a running server and say who waits for whom, and why."),
    "explain": ("gpudiag.cli.explain", "The same verdict from what is left: logs, recordings, dumps."),
    "launch": ("gpudiag.cli.launch", "Start SGLang or vLLM with EAGLE-3, checked before and watched."),
    "doctor": ("gpudiag.cli.doctor", "Is this machine, install, model and drafter fit to serve?"),
    "kernels": ("gpudiag.cli.kernels", "Which GPUs each compiled library has code for."),
    "drafter": ("gpudiag.cli.drafter", "Does this EAGLE-3 drafter fit, and why is acceptance low?"),
    "demo": ("gpudiag.cli.demo", "A real hang on this machine, without a GPU, and its diagnosis."),
    "runbook": ("gpudiag.cli.runbook", "The page behind a finding: what it means and how to fix it."),
    "schema": ("gpudiag.cli.schema", "JSON Schema of everything that --json prints."),
}
"""Module and one line of help of each command. The function in the module has the name of the command."""

EPILOG: Final = """\b
Examples:
  gpudiag attach                         the running server, or a list of them
  gpudiag attach 4242 --record hang.gpudiag
  gpudiag explain server.log
  gpudiag explain hang.gpudiag --format markdown

\b
Exit codes:
  0  nothing at or above --fail-on       4  target cannot be inspected
  1  findings                            5  partial: a source failed
  2  wrong usage                        70  internal error
  3  no such target                    130  interrupted
                                  129, 143  ended by SIGHUP, by SIGTERM
"""


class Group(click.Group):
    """Commands of one kind."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Alone, as in `gpudiag drafter`, it says what there is. click's own way is an error whose message is all of the help."""
        if not args and self.no_args_is_help:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class LazyGroup(Group):
    """Imports a command's module when the command runs. `lazy` has module and one line of help of each command."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]] = COMMANDS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.lazy:
            return None
        command = getattr(importlib.import_module(self.lazy[cmd_name][0]), cmd_name.replace("-", "_"))
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in self.lazy.items()])


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="gpudiag %(version)s")
@click.pass_context
def gpudiag(ctx: click.Context) -> None:
    """Say which rank, thread and line holds up a hung SGLang or vLLM server, and prove it.

    gpudiag only reads. It looks from outside, stops nothing and needs no GPU library.
    """
    if ctx.invoked_subcommand is None:
        from gpudiag.cli import watch

        if not watch.fits():
            click.echo(ctx.get_help())
            return
        ctx.exit(watch.home())
