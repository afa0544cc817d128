"""The documents name commands, options, targets and exit codes that exist."""

from __future__ import annotations

import re

import click
import pytest

from gpudiag.cli.group import gpudiag
from gpudiag.errors import ExitCode
from tests.support.checkout import ROOT, project_files

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/threat-model.md"]
COMMAND_LINE = re.compile(r"(?:^ {4}|`|bin/)gpudiag ([a-z][a-z-]*)((?: [^ `\n]+)*)", re.MULTILINE)
"""gpudiag with its arguments, in a block of code or between backquotes; two spaces end them."""


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def command(name: str) -> click.Command:
    found = gpudiag.get_command(click.Context(gpudiag), name)
    assert found is not None, f"there is no command {name}"
    return found


def options_of(name: str) -> set[str]:
    return {option for parameter in command(name).params for option in parameter.opts}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_and_their_options_exist(document: str) -> None:
    lines = COMMAND_LINE.findall(text_of(document))
    assert lines or document != "README.md"
    for name, arguments in lines:
        # What follows a lone -- is for another program.
        own = arguments.partition(" -- ")[0]
        assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", own)) <= _options_of_line(name, own) | {"--help"}


def _options_of_line(name: str, arguments: str) -> set[str]:
    """Of a group, those of the subcommand that comes first."""
    found = command(name)
    word = arguments.strip().partition(" ")[0]
    if isinstance(found, click.Group) and (inner := found.get_command(click.Context(found), word)) is not None:
        return {option for parameter in inner.params for option in parameter.opts}
    return options_of(name)


def test_the_table_of_options_is_that_of_attach() -> None:
    table = text_of("README.md").partition("| option of `attach`")[2].partition("\n\n")[0]
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", table))
    assert named
    assert named <= options_of("attach")


def test_the_exit_codes_are_all_there() -> None:
    rows = re.findall(r"^\| (\d+) \| ", text_of("README.md"), re.MULTILINE)
    assert sorted(map(int, rows)) == sorted(ExitCode)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_exist(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z]+)", text_of(document), re.MULTILINE))
    assert {name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)} == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_are_named_exist(document: str) -> None:
    text = text_of(document)
    named = set(re.findall(r"`((?:tests|benchmarks|docs|gpudiag|probes|kernels)/[\w./-]+)`", text))
    linked = {(ROOT / document).parent / target for target in re.findall(r"\]\(([\w./-]+)\)", text)}
    assert not [path for path in [*(ROOT / name for name in named), *linked] if not path.exists()]


def test_the_architecture_has_every_package() -> None:
    packages = {p.parts[1] for p in project_files() if p.parts[0] == "gpudiag" and len(p.parts) > 2}
    table = text_of("docs/architecture.md")
    assert not [name for name in packages if f"`{name}`" not in table]
