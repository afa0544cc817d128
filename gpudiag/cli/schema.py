"""gpudiag schema: what --json prints, as JSON Schema."""

from __future__ import annotations

from typing import Any

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of everything that --json prints.

    One report is an object; attach --all and explain with several servers print an array of them. doctor, kernels check and
    drafter check add how each check ended; kernels list prints a table, doctor --list an array of checks.
    """
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(printed_schema()), indent=2).decode())


def printed_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of whatever a command prints with --json."""
    import msgspec

    from gpudiag.model.doctor import CheckInfo, DoctorReport
    from gpudiag.model.kernel_table import KERNELS_SCHEMA, KernelTable
    from gpudiag.model.report import REPORT_SCHEMA, Report

    (report, doctor, table, check), definitions = msgspec.json.schema_components(
        (Report, DoctorReport, KernelTable, CheckInfo), ref_template="#/$defs/{name}"
    )
    for name, constant in (("Report", REPORT_SCHEMA), ("DoctorReport", REPORT_SCHEMA), ("KernelTable", KERNELS_SCHEMA)):
        definitions[name]["properties"]["schema"] = {"const": constant}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": REPORT_SCHEMA,
        "anyOf": [report, doctor, {"type": "array", "items": report}, table, {"type": "array", "items": check}],
        "$defs": definitions,
    }
