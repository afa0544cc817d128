"""gpudiag schema: what --json prints, as JSON Schema."""

from __future__ import annotations

from typing import Any

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of everything that --json prints.

    One report is an object; attach --all and explain with several servers print an array of them. doctor, kernels check and
    drafter check add how each check ended, drafter check also what the drafter is, drafter measure what was measured; kernels
    list prints a table, doctor --list an array of checks, the audits and the plan of drafter have forms of their own.
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
    from gpudiag.model.replay import TRAIN_SCHEMA, ReplayReport, TrainResult
    from gpudiag.model.report import REPORT_SCHEMA, Report
    from gpudiag.model.speculation import SpeculationReport
    from gpudiag.model.training_plan import PLAN_SCHEMA, TrainingPlan

    reports = (Report, DoctorReport, DrafterReport, SpeculationReport, ReplayReport)
    others = {KernelTable: KERNELS_SCHEMA, Audit: AUDIT_SCHEMA, TrainingPlan: PLAN_SCHEMA, TrainResult: TRAIN_SCHEMA}
    (report, *more, check), definitions = msgspec.json.schema_components(
        (*reports, *others, CheckInfo), ref_template="#/$defs/{name}"
    )
    for kind, constant in {**dict.fromkeys(reports, REPORT_SCHEMA), **others}.items():
        definitions[kind.__name__]["properties"]["schema"] = {"const": constant}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": REPORT_SCHEMA,
        "anyOf": [report, *more, {"type": "array", "items": report}, {"type": "array", "items": check}],
        "$defs": definitions,
    }
