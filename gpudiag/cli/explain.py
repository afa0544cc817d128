"""gpudiag explain: the verdict from what was kept of a server."""

from __future__ import annotations

from pathlib import Path

import click

from gpudiag.cli import pipeline
from gpudiag.cli.output import Output, emit, output_options
from gpudiag.errors import UsageError


@click.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@output_options
def explain(*, files: tuple[Path, ...], output: Output) -> int:
    """Say why a server hung, from recordings made with gpudiag attach --record.

    It needs neither the machine nor the server. Several files give several reports; JSON is then an array.
    """
    from gpudiag.session.load import is_recording, load

    reports = []
    for file in files:
        if file.is_file() and not is_recording(file):
            raise UsageError(
                f"{file} is no recording; explain reads files made with gpudiag attach --record",
                help="gpudiag attach PID --record hang.gpudiag",
            )
        reports += pipeline.reports_of(load(file).observation, command="explain")
    emit(reports, output, array=len(reports) > 1)
    return pipeline.exit_code_of(reports, output.fail_on)
