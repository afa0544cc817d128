"""The printed schema describes what is really printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag.cli import main
from gpudiag.model.doctor import Choice, DoctorReport
from gpudiag.render.json import dumps
from gpudiag.rules.preflight import judge, registry
from tests.doctor.machines import facts
from tests.kernels import fatbins as made
from tests.render.samples import SAMPLES

CHOICE = Choice(engine="vllm", version="0.33.0", supported=None, why="no model named", command="", kernels=(), slow=())
DOCTORED: DoctorReport = msgspec.structs.replace(
    judge.report(facts(), judge.judge(facts(), registry.CHECKS), command="doctor", version="0.1.0", wall_s=1.0), choices=(CHOICE,)
)


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
    known = {"title", "description", "type", "properties", "required", "items", "default", "minItems", "additionalProperties"}
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
        described, rest = schema.get("properties", {}), schema.get("additionalProperties")
        if rest is None:
            found += [f"{at}: {key} is not described" for key in value if key not in described]
        else:
            found += [problem for key, one in value.items() for problem in problems(one, rest, definitions, f"{at}.{key}")]
        for key, part in described.items():
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


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main.run([*arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [("doctor", "--fast", "--fail-on", "never"), ("doctor", "--list"), ("kernels", "list", "LIBRARY", "--for", "9.0")],
)
def test_it_describes_what_comes_before_serving(
    arguments: tuple[str, ...], schema: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "libk.so"
    library.write_bytes(made.shared_object({".nv_fatbin": made.fatbin(made.entry(made.CUBIN, 90))}))
    found = printed(capsys, *(str(library) if a == "LIBRARY" else a for a in arguments), "--json")
    assert problems(found, schema, schema["$defs"]) == []


def test_a_recorded_machine_and_a_choice_of_engines_are_described(schema: dict[str, Any]) -> None:
    report = json.loads(dumps(DOCTORED))
    assert report["choices"]
    assert problems(report, schema, schema["$defs"]) == []
    assert problems(report | {"checks": [{"code": "GPD103"}]}, schema, schema["$defs"])


def test_it_refuses_what_is_none(schema: dict[str, Any]) -> None:
    report = json.loads(dumps(SAMPLES["idle"]()))
    for key, value in (("schema", "gpudiag.report/9"), ("cost", None), ("findings", {}), ("verdict", "hung"), ("extra", 1)):
        assert problems(report | {key: value}, schema, schema["$defs"])
