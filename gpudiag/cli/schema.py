"""gpudiag schema: what --json prints, as JSON Schema."""

from __future__ import annotations

from typing import Any

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of everything that --json prints.

    One report is an object; attach --all and explain with several servers print an array of them. doctor, kernels check and
    drafter check add how each check ended, drafter check also what the drafter is, drafter measure what was measured; kernels
    list prints a table, doctor --list an array of checks, drafter audit-data a list of counts.
    """
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(printed_schema()), indent=2).decode())


def printed_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of whatever a command prints with --json."""
    import msgspec

    from gpudiag.model.audit import AUDIT_SCHEMA, Audit
    from gpudiag.model.doctor import CheckInfo, DoctorReport
    from gpudiag.model.drafter import DrafterReport
    from gpudiag.model.kernel_table import KERNELS_SCHEMA, KernelTable
    from gpudiag.model.report import REPORT_SCHEMA, Report
    from gpudiag.model.speculation import SpeculationReport

    reports = (Report, DoctorReport, DrafterReport, SpeculationReport)
    others = (KernelTable, Audit)
    (report, *more, check), definitions = msgspec.json.schema_components(
        (*reports, *others, CheckInfo), ref_template="#/$defs/{name}"
    )
    constants = {kind.__name__: REPORT_SCHEMA for kind in reports} | {"KernelTable": KERNELS_SCHEMA, "Audit": AUDIT_SCHEMA}
    for name, constant in constants.items():
        definitions[name]["properties"]["schema"] = {"const": constant}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": REPORT_SCHEMA,
        "anyOf": [report, *more, {"type": "array", "items": report}, {"type": "array", "items": check}],
        "$defs": definitions,
    }
