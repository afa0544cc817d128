"""A server that gpudiag started: what was planned, what it was started as, how far it is. The files of a run directory."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from gpudiag.model.server import Engine

RUN_SCHEMA: Final = "gpudiag.run/1"

RUN_VARIABLE: Final = "GPUDIAG_RUN"
"""Names the run directory in the environment of a server, so that attach finds what was armed."""

MODEL: Final = "MODEL"
"""Name of the Setting that is the model where it is an argument without an option."""

Phase = Literal[
    "import",
    "distributed-init",
    "weight-load",
    "kv-allocation",
    "compile",
    "graph-capture",
    "warm-up",
    "ready",
]
"""The stages of a start in the order in which they usually come; 'ready' is the first answered request."""

RunState = Literal["starting", "serving", "stalled", "stopping", "stopped", "crashed", "killed"]
"""'stalled': no progress, in start-up or while requests are open. 'killed': ended by a signal that gpudiag did not send."""


ENDED: Final[frozenset[RunState]] = frozenset({"stopped", "crashed", "killed"})
"""States after which a run says nothing more."""


class Setting(Struct, frozen=True, kw_only=True):
    """One argument or environment variable that gpudiag chose, and why. `switch` is the option that leaves it out."""

    name: str
    value: str
    why: str
    source: str
    """Who said so: 'profile kimi-k2.5', 'command line', 'arming', 'sglang 0.5.23 --help' ..."""
    switch: str | None = None


class LaunchPlan(Struct, frozen=True, kw_only=True):
    """Everything that a start needs, resolved against the installed engine. Nothing in it is decided later."""

    run_id: str
    run_directory: str
    """Absolute. `argv` and `environment` name files in it; whoever starts the server creates it, for its user alone."""
    directories: tuple[str, ...] = ()
    """What must be there in it before the start: 'nccl', 'flight', 'stacks'."""
    engine: Engine
    version: str | None
    """Of the installed engine; None where it could not be told."""
    python: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    """Only what differs from the environment in which gpudiag runs."""
    settings: tuple[Setting, ...]
    profile: str | None
    model: str
    drafter: str | None
    host: str
    port: int
    tensor_parallel: int
    pipeline_parallel: int = 1
    data_parallel: int = 1
    checkpoint_bytes: int | None = None
    """Size of the weight files of model and drafter together; None where they are not on this disk."""
    ras_address: str | None = None
    """HOST:PORT of NCCL's service of this server; None if it has none of its own."""
    flight_pipe: str | None = None
    """Stem of the pipes of torch's flight recorder, absolute: each rank reads STEM<rank>.pipe. None if it is not armed."""
    flight_dump: str | None = None
    """Stem of the files that it then writes: STEM<rank>."""
    kernel_dump_pipe: str | None = None
    """Pattern of CUDA_COREDUMP_PIPE (%h host, %p pid), only with --arm-kernel-dump."""
    notes: tuple[str, ...] = ()
    """Lines that a person should see before the start: 'EAGLE-3 off: no drafter; give --draft DIR'."""


class RunManifest(Struct, frozen=True, kw_only=True):
    """`manifest.json`: written before the server starts. Times are Unix seconds."""

    run_id: str
    schema: str = RUN_SCHEMA
    gpudiag: str
    host: str
    started_at: float
    supervisor_pid: int
    server_pid: int | None
    plan: LaunchPlan
    log: str
    """Path of what the server printed, relative to the run directory."""
    events: str = ""
    """Path of what its supervisor saw: who ended and how."""
    environment: tuple[tuple[str, str], ...] = ()
    """What the server was started with, as far as it shapes a server; secrets are left out."""
    versions: tuple[tuple[str, str], ...] = ()
    pipes: tuple[str, ...] = ()
    """Stems and patterns of the pipes that make the server write dumps, absolute."""
    ras_address: str | None = None


class PhaseProgress(Struct, frozen=True, kw_only=True):
    """One phase: when it began and ended (Unix seconds), and how much of what it has to do is done."""

    phase: Phase
    began_at: float
    ended_at: float | None = None
    last_run_s: float | None = None
    """What this phase took in the last run of the same profile that got past it."""
    done: float | None = None
    total: float | None = None
    unit: str | None = None
    rate_per_s: float | None = None
    eta_s: float | None = None
    detail: str | None = None
    """One line: 'page cache', 'inductor, 12 workers', '/cache/ops/lock' ..."""


class Serving(Struct, frozen=True, kw_only=True):
    """What a server that is ready does, from its own metrics. None: it does not say, or not yet."""

    running: float | None = None
    waiting: float | None = None
    tokens_per_s: float | None = None
    acceptance_length: float | None = None
    """Tokens a round including the bonus token."""
    acceptance_rate: float | None = None


class RunProgress(Struct, frozen=True, kw_only=True):
    """`progress.json`: replaced as a whole once a second, so that a reader never sees half of it."""

    run_id: str
    schema: str = RUN_SCHEMA
    at: float
    state: RunState
    phases: tuple[PhaseProgress, ...]
    serving: Serving | None = None
    exit_status: int | None = None
    """As `os.waitstatus_to_exitcode` gives it: negative is a signal."""
    sentence: str
    """What a person wants to know now: 'loading weights: 312 of 547 GB, 21 GB/s, 11 s left'."""
    code: str | None = None
    """Of the finding that says why it stalls, or why it ended; of a server that was ended while it stalled too."""
    report: str | None = None
    """Path of the last report of a stall or an end, relative to the run directory."""
