"""The entry point: one clear line for everything that goes wrong, the documented exit codes, and a fast --help."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from gpudiag.cli import main
from gpudiag.cli.group import COMMANDS, gpudiag
from gpudiag.errors import ExitCode, GpudiagError, NoTargetError
from tests.cli import programs


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Runs `gpudiag schema` with a body that raises."""

    def run(error: BaseException) -> int:
        @click.command()
        def broken() -> None:
            raise error

        monkeypatch.setattr("gpudiag.cli.schema.schema", broken)
        return main.run(["schema"])

    return run


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: gpudiag {name}" in out
    assert "--withhold" not in out
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("name", ["drafter", "kernels"])
def test_a_group_alone_says_what_there_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([name]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"Usage: gpudiag {name} [OPTIONS] COMMAND")
    assert "\n  check " in said.out
    assert said.err == ""


def test_the_lines_of_help_are_those_of_the_commands() -> None:
    context = click.Context(gpudiag)
    for name in COMMANDS:
        command = gpudiag.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gpudiag 0.")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["attak"], "No such command 'attak'.", "gpudiag --help"),
        (["attach", "--sampels", "3"], "No such option", "gpudiag attach --help"),
        (["attach", "one"], "Invalid value for '[PID]'", "gpudiag attach --help"),
        (["attach", "0"], "Invalid value for '[PID]'", "gpudiag attach --help"),
        (["attach", "1", "--all"], "PID and --all contradict", "leave one of them out"),
        (["attach", "1", "--json", "--format", "markdown"], "contradict each other", "leave one of them out"),
        (["attach", "1", "-o", "/nowhere/x"], "there is no directory /nowhere", "mkdir -p /nowhere"),
        (["attach", "1", "-o", "/"], "/ is a directory", "name a file"),
        (["attach", "1", "--record", "/nowhere/x"], "there is no directory /nowhere", "mkdir -p /nowhere"),
        (["attach", "1", "--withhold", "gossip"], "there is no source gossip", "--withhold one of"),
        (["explain"], "Missing argument 'FILE...'", "gpudiag explain --help"),
        (["demo", "fire"], "there is no scenario fire", "gpudiag demo --list"),
        (["demo", "--ranks", "3", "--victim", "3"], "there is no rank 3 among 3", "--victim 0 to 2"),
        (["runbook", "fire"], "there is no page for fire", "gpudiag runbook"),
    ],
)
def test_wrong_usage(
    arguments: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpudiag.assets.assets", lambda _: ())
    assert main.run(arguments) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()[:2]
    assert first.startswith("gpudiag: error: ")
    assert message in first
    assert second.startswith("try: ")
    assert hint in second


def test_an_error_is_one_line_and_what_to_try(
    failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(NoTargetError("nobody \x1b[2J is here", help="first\nsecond")) == ExitCode.NO_TARGET
    assert capsys.readouterr().err == "gpudiag: error: nobody \\x1b[2J is here\ntry: first\n     second\n"
    assert failing(GpudiagError("plain")) == ExitCode.INTERNAL
    assert capsys.readouterr().err == "gpudiag: error: plain\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_interrupted(error: BaseException, failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(error) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "gpudiag: error: interrupted\n"


def test_a_bug_is_one_line_and_says_how_to_report_it(
    failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUDIAG_DEBUG", raising=False)
    assert failing(ZeroDivisionError("by\x1b zero")) == ExitCode.INTERNAL
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("gpudiag: error: internal error, a bug in gpudiag: ZeroDivisionError: by\\x1b zero (test_main.py:")
    assert "GPUDIAG_DEBUG=1 gpudiag schema" in second
    monkeypatch.setenv("GPUDIAG_DEBUG", "1")
    assert failing(ZeroDivisionError("by zero")) == ExitCode.INTERNAL
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_handlers_of_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main.run(["--version"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_nobody_reads_the_output() -> None:
    process = subprocess.Popen(
        programs.command("schema"), env=programs.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=30) == 128 + signal.SIGPIPE


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys\nfrom gpudiag.cli.main import run\nassert run(['--help']) == 0\n"
        "heavy = ('gpudiag', 'psutil', 'rich', 'msgspec')\n"
        "print(*(m for m in sys.modules if m.partition('.')[0] in heavy), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], env=programs.environment(), capture_output=True, text=True, check=True)
    assert set(result.stderr.split()) == {
        "gpudiag", "gpudiag.cli", "gpudiag.cli.group", "gpudiag.cli.main", "gpudiag.cli.pipes",
        "gpudiag.cli.running", "gpudiag.errors",
    }  # fmt: skip


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_in_the_middle_of_a_look(number: signal.Signals, code: int) -> None:
    """gpudiag leaves at once and in order, and its target goes on."""
    target = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert target.stdout is not None
        assert target.stdout.readline() == b"up\n"
        arguments = ("attach", str(target.pid), "--pause", "--samples", "9", "--interval", "60")
        process = subprocess.Popen(
            programs.command(*arguments), env=programs.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "--pause stops each of 1 processes" in said
        process.send_signal(number)
        rest = process.communicate(timeout=30)[1]
        assert process.returncode == code
        assert "Traceback" not in rest
        assert state_of(target.pid) not in "Tt"
    finally:
        target.kill()
        target.communicate()


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def test_completion_is_there() -> None:
    result = programs.gpudiag(_GPUDIAG_COMPLETE="bash_complete", COMP_WORDS="gpudiag at", COMP_CWORD="1")
    assert "attach" in result.stdout
    assert os.environ.get("_GPUDIAG_COMPLETE") is None


@pytest.mark.parametrize("arguments", [["schema"], ["demo", "--list"], ["--help"], ["runbook", "GPD307"]])
@pytest.mark.parametrize("closed", [False, True])
def test_an_output_that_takes_nothing(arguments: list[str], closed: bool) -> None:
    shell = 'exec "$@" >&-' if closed else 'exec "$@" >/dev/full'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *programs.command(*arguments)],
        env=programs.environment(), stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip
    reason = "Bad file descriptor" if closed else "No space left on device"
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"gpudiag: error: cannot write to standard output: {reason}")


def test_without_any_of_the_standard_streams() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *programs.command("attach", str(os.getpid()))],
        env=programs.environment(), timeout=60,
    )  # fmt: skip
    assert done.returncode == 2, "the report reached nobody"


def test_an_interrupt_while_gpudiag_loads() -> None:
    """Before any command runs: the interrupt comes with the import of click."""
    code = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from gpudiag.cli.main import main
main(["--help"])
"""
    done = subprocess.run([sys.executable, "-c", code], env=programs.environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
