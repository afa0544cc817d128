"""gpudiag attach: look at a running server and say why it hangs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import click

from gpudiag.cli import target, watch
from gpudiag.cli.exits import exit_code_of
from gpudiag.cli.kernel_dump import check_flags, with_kernels
from gpudiag.cli.output import Output, emit, output_options, say
from gpudiag.errors import GpudiagError, NoTargetError, UsageError
from gpudiag.model.log import ServerLog
from gpudiag.model.report import Report
from gpudiag.model.run import RUN_VARIABLE
from gpudiag.model.server import Server
from gpudiag.model.snapshot import Observation
from gpudiag.session import pipeline
from gpudiag.session.redact import Redactor

if TYPE_CHECKING:
    from gpudiag.collect.options import LookOptions

SAMPLES: Final = 2


@click.command()
@click.argument("pid", type=click.IntRange(min=1), required=False)
@click.option("--once", is_flag=True, help="Print one diagnosis and exit, also on a terminal.")
@click.option("--all", "every", is_flag=True, help="Every server on this host; JSON is then an array.")
@click.option("--samples", type=click.IntRange(1, 100), default=SAMPLES, show_default=True, help="Number of looks at the server.")
@click.option("--interval", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--confirm", is_flag=True, help="One more look, 5 s after the first, for a firmer verdict.")
@click.option("--pause", is_flag=True, help="Stop each process for the moment in which its stack is read.")
@click.option("--native", is_flag=True, help="C and C++ frames too. Stops each process like --pause, for longer.")
@click.option("--ras", is_flag=True, help="Ask NCCL's own service too, even where memory tells what it knows.")
@click.option("--flight-recorder", is_flag=True, help="Ask each rank to dump torch's flight recorder; takes up to 8 s.")
@click.option("--kernel-dump", is_flag=True, help="Name the kernel on each GPU. Asks first: it ends ranks that hang.")
@click.option("--yes", is_flag=True, help="Do what --kernel-dump does without asking.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Keep what was seen, for gpudiag explain.")
@click.option("--allow-signals", is_flag=True, help="Offer to end a process from the terminal interface; it asks first.")
@output_options
@click.option("--withhold", multiple=True, metavar="SOURCE", hidden=True, help="Do without a source of evidence.")
def attach(
    *,
    pid: int | None,
    once: bool,
    every: bool,
    samples: int,
    interval: float,
    confirm: bool,
    pause: bool,
    native: bool,
    ras: bool,
    flight_recorder: bool,
    kernel_dump: bool,
    yes: bool,
    record: Path | None,
    allow_signals: bool,
    withhold: tuple[str, ...],
    output: Output,
) -> int:
    """Say who waits for whom in a running server, and why.

    On a terminal it keeps looking and shows what changes, once a second (--interval). With --once, or if its output goes
    elsewhere, or with an option that asks for one look of its own kind, it prints one diagnosis and ends.

    Without PID it takes the server that runs here, or asks if there are several. It only reads: no signal, no ptrace,
    nothing is stopped unless you say --pause or --native.

    --confirm also asks the server's /metrics whether tokens come, for at most 6 s after its looks, if all ranks run and no
    request is answered: a long answer that is not streamed looks the same otherwise.

    --ras asks the service on NCCL_RAS_ADDR once; it answers in milliseconds, or in 3 s if a rank does not respond, and
    names ranks that it cannot reach. Never while a communicator is being created: questions then have crashed jobs.

    --flight-recorder talks to ranks that were started with TORCH_NCCL_DEBUG_INFO_PIPE_FILE: a byte in that pipe has each
    write TORCH_FR_DUMP_TEMP_FILE anew. It shows calls of other type, size or data type. Dumps that lie there already, no
    more than five minutes old, are read without it.

    --kernel-dump is for servers started with gpudiag launch --arm-kernel-dump: each rank whose GPU holds a kernel that
    does not end writes a CUDA core dump, and cuda-gdb names kernel and source line. Such a rank is aborted by it.
    """
    if pid is not None and every:
        raise UsageError("PID and --all contradict each other", help="leave one of them out")
    check_flags(kernel_dump=kernel_dump, yes=yes, every=every)
    if math.isnan(interval):
        raise UsageError("--interval is no number", help="gpudiag attach --interval 1")
    if record is not None:
        from gpudiag.session.record import check_writable

        if output.file is not None and output.file.resolve() == record.resolve():
            raise UsageError(f"the report and the recording cannot both be {record}", help="name another file after --record")
        check_writable(record)
    of_its_own_kind = (once, every, pause, native, flight_recorder, kernel_dump, confirm, record is not None, samples != SAMPLES)
    if not any(of_its_own_kind) and output.for_a_person and watch.fits():
        return watch.attach(pid, output, interval_s=interval, allow_signals=allow_signals, withhold=withhold, ras=ras)
    began = time.monotonic()
    confirm = confirm or kernel_dump
    with pipeline.Readers() as readers:
        options = look_options(pause=pause, native=native, ras=ras, flight_recorder=flight_recorder, withhold=withhold)
        around = pipeline.scan(readers)
        servers = target.every(around) if every else (target.by_pid(around, pid) if pid else target.choose(around),)
        _announce(servers, options, confirm=confirm)
        observation = pipeline.observe(
            servers, around, options, samples=samples, interval_s=interval, confirm=confirm, readers=readers
        )
        logs = pipeline.logs_of(observation, readers)
    if kernel_dump:
        observation = _dump_kernels(observation, logs, yes=yes)
    elif confirm:
        observation = _count_tokens(observation, logs)
    took_s = time.monotonic() - began
    redactor = Redactor()
    trouble = _record(observation, logs, record, redactor, redact=output.redact)
    reports = pipeline.reports_of(observation, command="attach", wall_s=took_s, logs=logs)
    _point_to_runs(observation)
    return _finish(reports, output, redactor, array=every, trouble=trouble)


def look_options(
    *,
    pause: bool = False,
    native: bool = False,
    ras: bool = False,
    flight_recorder: bool = False,
    withhold: tuple[str, ...] = (),
) -> LookOptions:
    """What to look at, and how. Raises UsageError for a source that does not exist."""
    from gpudiag.collect.options import LookOptions
    from gpudiag.collect.process_reader import Source

    sources = get_args(Source)
    if unknown := [s for s in withhold if s not in sources]:
        raise UsageError(f"there is no source {unknown[0]}", help=f"--withhold one of: {', '.join(sources)}")
    return LookOptions(
        stacks="native" if native else "pause" if pause else "nonblocking",
        withhold=frozenset(s for s in sources if s in withhold),
        ras=ras,
        flight_recorder=flight_recorder,
    )


def _announce(servers: tuple[Server, ...], options: LookOptions, *, confirm: bool) -> None:
    """What touches the target is said before it is done; that a look takes time only where somebody sits and waits."""
    processes = sum(len(s.members) for s in servers)
    if options.stacks in ("native", "pause"):
        flag = f"--{options.stacks}"
        say(f"{flag} stops each of {processes} processes while its stack is read; the report says for how long")
    if options.flight_recorder:
        say("--flight-recorder has each rank that offers a pipe write its dump file anew, within 8 s")
    if sys.stderr.isatty():
        pids = ", ".join(str(s.root_pid) for s in servers)
        patience = ", for at least 5 s" if confirm or options.flight_recorder else ""
        say(f"looking at pid {pids} ({processes} processes){patience} ...")


def _point_to_runs(observation: Observation) -> None:
    """Where the log and the evidence of a server are that gpudiag launch started. It says so itself, so nothing there is read."""
    from gpudiag.model.reading import value_or

    for pid in observation.last.roots:
        process = observation.last.process(pid)
        place = value_or(process.environ, {}).get(RUN_VARIABLE) if process is not None else None
        if place:
            say(f"pid {pid} was started by gpudiag launch; its log, and evidence taken so far: {place}")


def _dump_kernels(observation: Observation, logs: Sequence[ServerLog], *, yes: bool) -> Observation:
    """After the last look: nothing that a rank does in its dump is evidence of the hang.

    Raises NoTargetError if the server has gone meanwhile.
    """
    (known, *_) = pipeline.reports_of(observation, command="attach", logs=logs)
    return with_kernels(observation, pipeline.servers_of(observation)[0], known.verdict, yes=yes)


def _count_tokens(observation: Observation, logs: Sequence[ServerLog]) -> Observation:
    """After the last look, so that the question moves nothing that was looked at."""
    from gpudiag.session import tokens

    try:
        reports = pipeline.reports_of(observation, command="attach", logs=logs)
    except NoTargetError:
        return observation
    for door in tokens.doors(observation, pipeline.servers_of(observation), reports):
        say(f"all ranks run and a request is not answered: asking http://{door.address}/metrics whether tokens come")
        observation = tokens.with_counts(observation, door)
    return observation


def _record(
    observation: Observation, logs: Sequence[ServerLog], file: Path | None, redactor: Redactor, *, redact: bool
) -> GpudiagError | None:
    """Keep the evidence before anything is made of it. If that fails the diagnosis still comes, and then the error."""
    if file is None:
        return None
    from gpudiag.errors import RecordingError
    from gpudiag.session.record import save

    try:
        taken = save(observation, file, redact=redact, command="attach", redactor=redactor, logs=logs)
    except RecordingError as error:
        return RecordingError(
            error.message, help=error.help or f"gpudiag attach --record FILE, on a disk with room: df {file.parent}"
        )
    say(f"recorded in {file}; taken out: {taken.summary if redact else 'nothing, as told by --no-redact'}")
    return None


def _finish(reports: list[Report], output: Output, redactor: Redactor, *, array: bool, trouble: GpudiagError | None) -> int:
    emit(reports, output, array=array, redactor=redactor)
    if trouble is not None:
        raise trouble
    return exit_code_of(reports, output.fail_on)
