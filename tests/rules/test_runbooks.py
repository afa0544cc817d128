"""Every rule has its page, every page its rule, and both say what the catalogue says."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import click
import pytest
import yaml

import gpudiag.rules
from gpudiag.assets import assets
from gpudiag.cli.group import gpudiag as command_line
from gpudiag.rules.base import Rule
from gpudiag.rules.catalogue import CODES
from gpudiag.rules.confidence import STRENGTH
from gpudiag.rules.preflight.base import Check
from gpudiag.rules.registry import RULES

HEADINGS = (
    "What it means",
    "Why it happens",
    "How gpudiag decides",
    "Confirm by hand",
    "Fix",
    "Known false alarms",
    "References",
)
ENGINES = {"sglang", "vllm", "torch", "any"}
PLANNED = {"doctor", "drafter", "kernels", "launch"}
"""Commands that pages may name before they are there; once they are, their options are checked like those of the others."""

PAGES = {path.name: path for path in assets("runbooks")}
COMMAND = re.compile(r"(?:^|[\s`(])gpudiag ([a-z]+)((?: [^\s`|;&)]+)*)", re.MULTILINE)
"""gpudiag with its arguments, in a block of commands or between backquotes."""


def found_in_rules() -> Iterator[tuple[str, str, str, str]]:
    """Module, code, name and severity of each judgement that any module below gpudiag.rules defines."""
    for module_info in pkgutil.walk_packages(gpudiag.rules.__path__, "gpudiag.rules."):
        module = importlib.import_module(module_info.name)
        for value in vars(module).values():
            if isinstance(value, Rule):
                yield module.__name__, value.code, value.name, value.severity
            elif isinstance(value, Check):
                yield module.__name__, value.info.code, value.info.name, value.info.severity


@cache
def judgements() -> dict[str, set[tuple[str, str]]]:
    """(name, severity) by code, of the rules on servers and logs and of the checks before serving."""
    by_code: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for _, code, name, severity in found_in_rules():
        by_code[code].add((name, severity))
    return dict(by_code)


@cache
def parts(file: str) -> tuple[dict[str, Any], str]:
    """Front matter and body of a page."""
    opening, front, body = PAGES[file].read_text(encoding="utf-8").split("---\n", 2)
    assert opening == "", "a page starts with its front matter"
    fields = yaml.safe_load(front)
    assert isinstance(fields, dict)
    return fields, body


def outside_fences(body: str) -> str:
    return re.sub(r"^[ \t]*```.*?^[ \t]*```$", "", body, flags=re.MULTILINE | re.DOTALL)


def test_the_catalogue_is_well_formed() -> None:
    assert all(re.fullmatch(r"GPD[1-7]\d\d", code) for code in CODES)
    assert all(re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", name) for name in CODES.values())
    assert len(set(CODES.values())) == len(CODES), "a name stands for one code"


def test_the_walk_finds_what_the_registry_lists() -> None:
    assert {r.code for r in RULES} <= judgements().keys()


def test_every_rule_has_the_name_of_its_code() -> None:
    assert {(m, c, n) for m, c, n, _ in found_in_rules() if CODES.get(c) != n} == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_a_rule_has_exactly_one_page(rule: Rule[Any]) -> None:
    assert [file for file in PAGES if file.startswith(rule.code)] == [f"{rule.code}-{rule.name}.md"]


@pytest.mark.parametrize("file", sorted(PAGES))
def test_a_page_belongs_to_a_rule(file: str) -> None:
    fields, _ = parts(file)
    assert file == f"{fields['code']}-{fields['name']}.md"
    assert (fields["name"], fields["severity"]) in judgements()[fields["code"]]


@pytest.mark.parametrize("file", sorted(PAGES))
def test_front_matter(file: str) -> None:
    fields, _ = parts(file)
    assert set(fields["engines"]) <= ENGINES
    assert fields["engines"]
    assert set(fields["evidence"]) <= STRENGTH.keys()
    assert fields["evidence"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", str(fields["since"]))
    if "title" in fields:
        # `gpudiag runbook` reads the lines itself, without a YAML parser.
        plain = re.search(r"^title: (.+)$", PAGES[file].read_text(encoding="utf-8"), re.MULTILINE)
        assert plain is not None
        assert plain[1].strip("\"'") == fields["title"]


@pytest.mark.parametrize("file", sorted(PAGES))
def test_headings(file: str) -> None:
    fields, body = parts(file)
    text = outside_fences(body)
    assert re.findall(r"^# (.+)$", text, re.MULTILINE) == [f"{fields['code']} {fields['name']}"]
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == HEADINGS
    sections = re.split(r"^## .+$", body, flags=re.MULTILINE)[1:]
    assert [h for h, section in zip(HEADINGS, sections, strict=True) if not section.strip()] == []


@pytest.mark.parametrize("file", sorted(PAGES))
def test_fenced_blocks_name_their_language(file: str) -> None:
    _, body = parts(file)
    fences = re.findall(r"^[ \t]*```(.*)$", body, re.MULTILINE)
    assert len(fences) % 2 == 0
    assert [f for f in fences[::2] if not re.fullmatch(r"[a-z]+", f)] == []
    assert [f for f in fences[1::2] if f] == []


@pytest.mark.parametrize("file", sorted(PAGES))
def test_commands_of_gpudiag_exist(file: str) -> None:
    _, body = parts(file)
    for name, arguments in COMMAND.findall("\n".join(_code(body))):
        command = command_line.get_command(click.Context(command_line), name)
        if command is None:
            assert name in PLANNED
            continue
        word = arguments.split()[0] if arguments.split() else ""
        if isinstance(command, click.Group) and (inner := command.get_command(click.Context(command), word)) is not None:
            command = inner
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", arguments)) <= known


def _code(body: str) -> Iterator[str]:
    """Fenced blocks, and what stands between backquotes."""
    yield from re.findall(r"^[ \t]*```[a-z]+\n(.*?)^[ \t]*```$", body, re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`([^`\n]+)`", outside_fences(body))


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith(("GPD3", "GPD4"))])
def test_the_page_of_a_hang_begins_with_first_aid(name: str) -> None:
    """Whoever reads it has a server that is down: one thing to do now stands before what it means."""
    before = PAGES[name].read_text(encoding="utf-8").partition("\n## ")[0]
    (line,) = re.findall(r"^\*\*First aid:\*\* (.+?)$", before, re.MULTILINE)
    assert len(line) > 20
