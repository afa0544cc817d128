"""The printed schema describes what is really printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudiag.cli import main
from gpudiag.render.json import dumps
from tests.render.samples import SAMPLES


def problems(value: Any, schema: dict[str, Any], definitions: dict[str, Any], at: str = "$") -> list[str]:
    """What a value does not fulfil of the part of JSON Schema that the project's schemas use."""
    if "$ref" in schema:
        return problems(value, definitions[schema["$ref"].rpartition("/")[2]], definitions, at)
    if "anyOf" in schema:
        tries = [problems(value, s, definitions, at) for s in schema["anyOf"]]
        return [] if any(not t for t in tries) else min(tries, key=len)
    if "const" in schema:
        return [] if value == schema["const"] else [f"{at}: {value!r}"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{at}: {value!r}"]
    known = {"title", "description", "type", "properties", "required", "items", "default", "minItems"}
    assert set(schema) <= known, set(schema) - known
    types: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "null": type(None),
        "boolean": bool,
    }
    if not isinstance(value, types[schema["type"]]):
        return [f"{at}: no {schema['type']}"]
    found = [f"{at}: {key} is missing" for key in schema.get("required", []) if key not in value]
    if isinstance(value, dict):
        found += [f"{at}: {key} is not described" for key in value if key not in schema["properties"]]
        for key, part in schema["properties"].items():
            found += problems(value[key], part, definitions, f"{at}.{key}") if key in value else []
    if isinstance(value, list):
        for number, item in enumerate(value):
            found += problems(item, schema["items"], definitions, f"{at}[{number}]")
    return found


@pytest.fixture
def schema(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main.run(["schema"]) == 0
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out)
    return loaded


def test_it_describes_every_report(schema: dict[str, Any]) -> None:
    assert schema["$schema"].endswith("2020-12/schema")
    for make in SAMPLES.values():
        assert problems(json.loads(dumps(make())), schema, schema["$defs"]) == []
    several = json.loads(dumps([make() for make in SAMPLES.values()]))
    assert problems(several, schema, schema["$defs"]) == []


def test_it_refuses_what_is_none(schema: dict[str, Any]) -> None:
    report = json.loads(dumps(SAMPLES["idle"]()))
    for key, value in (("schema", "gpudiag.report/9"), ("cost", None), ("findings", {}), ("verdict", "hung"), ("extra", 1)):
        assert problems(report | {key: value}, schema, schema["$defs"])
