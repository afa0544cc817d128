"""The manual page is that of the commands as they are, and shells complete them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpudiag.cli.group import COMMANDS
from tests.support.checkout import ROOT


def test_the_page_is_current() -> None:
    made = subprocess.run([sys.executable, ROOT / "docs/make_manual.py", "--check"], capture_output=True, text=True)
    assert made.returncode == 0, f"run `make manual`: {made.stderr}"


def test_every_command_has_a_section() -> None:
    page = (ROOT / "docs/gpudiag.1").read_text()
    assert not [name for name in COMMANDS if f".SH GPUDIAG {name.upper()}\n" not in page]


def completed(*words: str) -> list[str]:
    """What a shell is offered for the last word."""
    variables = {"_GPUDIAG_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([sys.executable, "-m", "gpudiag"], env=os.environ | variables, capture_output=True, text=True)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_and_options_are_completed() -> None:
    assert completed("gpudiag", "att") == ["attach"]
    assert "--confirm" in completed("gpudiag", "attach", "--con")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    variables = {"_GPUDIAG_COMPLETE": f"{shell}_source"}
    done = subprocess.run([sys.executable, "-m", "gpudiag"], env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0
    assert "_GPUDIAG_COMPLETE" in done.stdout
