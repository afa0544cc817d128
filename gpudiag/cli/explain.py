"""gpudiag explain: the verdict from what was kept of a server."""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from gpudiag import __version__
from gpudiag.cli import watch
from gpudiag.cli.exits import exit_code_of
from gpudiag.cli.output import Output, emit, output_options, say
from gpudiag.errors import ExitCode, NoTargetError, UsageError
from gpudiag.model.log import LogFacts, ServerLog
from gpudiag.model.report import Report
from gpudiag.session import pipeline
from gpudiag.session.bundle import SUFFIX

STDIN: Final = "-"


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the arguments name: recordings, and everything else."""

    recordings: list[Path] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--tui", is_flag=True, help="Show it in the terminal interface; the looks of a recording can be gone through.")
@output_options
def explain(*, files: tuple[str, ...], tui: bool, output: Output) -> int:
    """Say why a server hung or died, from what was kept of it.

    FILE is a log (plain, .gz, .xz or .zst), a recording made with gpudiag attach --record, a dump of py-spy or of torch's
    flight recorder, a directory of such files, or - for standard input. Nothing of the server needs to be there any more.

    Logs and dumps that are given together are taken as those of one server, its nodes and ranks: one report. Each recording
    gives its own report, and with logs of the same server one for both. JSON is an array if there are several.
    """
    if tui and len(files) == 1 and (directory := Path(files[0])).is_dir() and _is_run(directory):
        return watch.run(directory, output)
    given = sort_out(files)
    if tui:
        return _show(given, output)
    began = time.monotonic()
    reports: list[Report] = []
    for recording in given.recordings:
        from gpudiag.session.load import load

        kept = load(recording)
        try:
            reports += pipeline.reports_of(kept.observation, command="explain", logs=kept.logs)
        except NoTargetError as error:
            help = "record again with: gpudiag attach PID --record FILE"
            raise NoTargetError(f"{recording} holds no server: no process that it was made of is in it", help=help) from error
    lost = False
    if given.logs:
        from gpudiag.logs.facts import is_known, read_facts

        facts = read_facts(dict.fromkeys(given.logs))
        if not reports and not is_known(facts):
            raise UsageError(
                _nothing(given.logs, facts), help="gpudiag explain FILE, with the log of a server, a recording or a dump"
            )
        reports = _told(reports, facts, took_s=time.monotonic() - began)
        lost = bool(facts.unread) or any(n.reason.startswith("ends early") for r in reports for n in r.not_read)
    emit(reports, output, array=len(reports) > 1)
    code = exit_code_of(reports, output.fail_on)
    return ExitCode.PARTIAL if lost and code == ExitCode.OK else code


def _show(given: Given, output: Output) -> int:
    """One recording, or the logs of one server, in the terminal interface."""
    if len(given.recordings) + bool(given.logs) != 1:
        raise UsageError("--tui shows one recording, or the logs of one server", help="gpudiag explain FILE --tui")
    if given.recordings:
        return watch.recording(given.recordings[0], output)
    from gpudiag.logs.facts import is_known, read_facts

    facts = read_facts(dict.fromkeys(given.logs))
    if not is_known(facts):
        raise UsageError(_nothing(given.logs, facts), help="gpudiag explain FILE --tui, with a recording or the log of a server")
    return watch.told(_told([], facts, took_s=0.0), facts, output)


def _nothing(names: Sequence[str], facts: LogFacts) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    why = f": {facts.unread[0][0]}: {facts.unread[0][1]}" if facts.unread else ""
    return f"nothing in {shown} is a log, a recording or a dump{why}"


def _told(reports: Sequence[Report], facts: LogFacts, *, took_s: float) -> list[Report]:
    """The reports with what the logs say: beside the look at the same server, or as a report of their own."""
    from gpudiag.rules.log_beside import belong_together, with_log
    from gpudiag.rules.log_verdict import explain_log

    same = next((r for r in reports if belong_together(r, facts)), None)
    if same is None or same.target is None:
        told = explain_log(facts, version=__version__, host=platform.node(), took_s=round(took_s, 3))
        return [*reports, told]
    log = ServerLog(root_pid=same.target.root_pid, facts=facts)
    return [with_log(r, log) if r is same else r for r in reports]


def sort_out(files: Sequence[str]) -> Given:
    """Tell recordings from logs. Raises UsageError for a name that cannot be read; what lies in a directory may be unreadable."""
    given = Given()
    for file in files:
        if file == STDIN:
            _check_stdin()
            given.logs.append(file)
        elif os.path.isdir(file):
            _from_directory(file, given)
        elif _is_recording(file):
            given.recordings.append(Path(file))
        else:
            given.logs.append(file)
    return given


def _check_stdin() -> None:
    """Say what a terminal waits for. Raises UsageError if standard input is closed or a device that never ends."""
    from gpudiag.logs.read import refusal

    if sys.stdin is None:
        raise UsageError("standard input is closed", help="gpudiag explain FILE")
    if sys.stdin.isatty():
        say("reading from the terminal; end with Ctrl-D")
        return
    with contextlib.suppress(OSError):
        why = refusal(os.fstat(sys.stdin.fileno()))
        if why:
            raise UsageError(f"cannot read standard input: it {why}", help="gpudiag explain FILE")


def _from_directory(folder: str, given: Given) -> None:
    """Recordings in a directory are taken out; what else lies there is for the reader of logs, which leaves models alone.

    Of the directory of a run, which holds every look of its supervisor, the one that counts is taken.
    """
    from gpudiag.launch.kept import kept_of
    from gpudiag.logs.read import find_files, is_text

    kept = kept_of(Path(folder))
    if kept is not None:
        if kept.recording is not None and _is_recording(str(kept.recording)):
            given.recordings.append(kept.recording)
        given.logs.extend(map(str, kept.logs))
        if kept.others:
            say(f"{kept.others} other looks at this server lie in {folder}/evidence: gpudiag explain reads each by its name")
        return

    files = find_files(folder)
    recordings = [f for f in files if f.endswith(SUFFIX) and _is_recording(f)]
    given.recordings.extend(map(Path, recordings))
    given.logs.extend([folder] if not recordings else [f for f in files if f not in recordings and is_text(f)])


def _is_run(directory: Path) -> bool:
    from gpudiag.launch.run_directory import RunDirectory

    return RunDirectory(directory).manifest() is not None


def _is_recording(file: str) -> bool:
    """Whether it is one. A pipe is not touched: it opens only once. Raises UsageError if it cannot be read or never ends."""
    from gpudiag.logs.read import refusal
    from gpudiag.session.load import is_recording

    try:
        status = os.stat(file)
        if why := refusal(status):
            raise UsageError(f"cannot read {file}: it {why}", help="gpudiag explain FILE, with the log of a server")
        if not stat.S_ISREG(status.st_mode):
            return False
        with open(file, "rb"):
            return is_recording(Path(file))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise UsageError(f"cannot read {file}: {reason}", help=f"ls -l {file}") from error
