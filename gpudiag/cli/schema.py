"""gpudiag schema: what --json prints, as JSON Schema."""

from __future__ import annotations

from typing import Any

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of everything that --json prints.

    One report is an object; attach --all and explain with several servers print an array of them.
    """
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(report_schema()), indent=2).decode())


def report_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a report, or an array of reports."""
    import msgspec

    from gpudiag.model.report import REPORT_SCHEMA, Report

    found = msgspec.json.schema(Report)
    report = found["$defs"]["Report"]
    report["properties"]["schema"] = {"const": REPORT_SCHEMA}
    reference = {"$ref": "#/$defs/Report"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": REPORT_SCHEMA,
        "anyOf": [reference, {"type": "array", "items": reference}],
        "$defs": found["$defs"],
    }
