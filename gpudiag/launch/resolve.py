"""From a request to the plan of a start: argv, environment, and the reason for each of them. Pure but for files it is given."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpudiag.engines.base import whole
from gpudiag.engines.launching import DIALECTS, Dialect
from gpudiag.engines.words import number_of, taken_apart, value_of
from gpudiag.errors import UsageError
from gpudiag.launch import arming, cpu, profiles, speculation
from gpudiag.launch.builder import PlanBuilder
from gpudiag.launch.profile import Profile
from gpudiag.launch.request import Host, Request
from gpudiag.model.flags import FlagTable
from gpudiag.model.modelfiles import Drafter, ModelFiles
from gpudiag.model.run import MODEL, RUN_VARIABLE, LaunchPlan, Setting

COMMAND_LINE: Final = "command line"


def profiles_for(
    request: Request, model: ModelFiles | None, host: Host, variables: Mapping[str, str], home: Path
) -> tuple[Profile, ...]:
    """Those named, else the one for the model; and on a host without a GPU that for CPUs. Earlier ones win."""
    named = tuple(profiles.named(name, variables, home) for name in request.profiles)
    chosen = named
    if not any(p.match.model_type or p.match.architectures for p in named) and model is not None:
        fits = profiles.matching(model.config, variables, home)
        chosen = (*named, *((fits,) if fits is not None else ()))
    if not host.has_gpu and all(p.name != profiles.CPU for p in chosen):
        return (*chosen, profiles.named(profiles.CPU, variables, home))
    return chosen


def profile_variables(request: Request, chosen: Sequence[Profile]) -> dict[str, str]:
    """The environment that the profiles ask for; what the engine offers may depend on it."""
    found: dict[str, str] = {}
    for profile in chosen:
        for name, figure in profile.engine(request.engine).environment.items():
            found.setdefault(name, str(figure.value))
    return found


def port_of(request: Request) -> int:
    """Where the server will listen. Raises UsageError for two answers, or one that is no port."""
    options = taken_apart(request.arguments, None)
    said = value_of(options, ("--port",))
    if said is None:
        return request.port or DIALECTS[request.engine].default_port
    if request.port is not None and said != str(request.port):
        raise UsageError(f"--port {request.port}, and --port {said} among the engine's arguments", help="leave one of them out")
    port = number_of(options, ("--port",))
    if port is None or not 0 < port < 65536:
        raise UsageError(f"--port {said}: no port", help="--port 1 to 65535")
    return port


class Resolver:
    """Makes one plan. `files` and `drafter_files` are what could be read of model and drafter."""

    def __init__(self, request: Request, host: Host, table: FlagTable | None, variables: Mapping[str, str], home: Path) -> None:
        self.request = request
        self.host = host
        self.table = table
        self.variables = variables
        self.home = home
        self.dialect: Dialect = DIALECTS[request.engine]
        self.builder = PlanBuilder(table, request.arguments, variables)

    def drafter(self, chosen: Sequence[Profile], files: ModelFiles | None) -> tuple[str, str] | None:
        """Directory of the drafter and who named it. To be asked once, before `plan`: it may leave a note."""
        config = files.config if files is not None else None
        return speculation.choose_drafter(self.builder, self.request, chosen, config, self.variables, self.home)

    def plan(
        self,
        chosen: Sequence[Profile],
        files: ModelFiles | None,
        drafter: tuple[str, str] | None,
        drafter_files: Drafter | None,
    ) -> LaunchPlan:
        request, builder = self.request, self.builder
        self._model()
        if value_of(builder.given, ("--config",)) is not None:
            builder.notes.append("your --config: what it sets gives way to the options added here; --explain lists them")
        self._port()
        self._parallelism(chosen)
        if drafter is not None:
            tensors = drafter_files.tensors if drafter_files is not None else ()
            speculation.add(builder, request, chosen, drafter, tensors)
        self._profiles(chosen)
        if request.engine == "sglang" and builder.says(self.dialect.speculation) and not self._has(self.dialect.max_running[0]):
            speculation.keep_running(builder)
        sizes = {
            name: self._size(getattr(self.dialect, name)) for name in ("tensor_parallel", "pipeline_parallel", "data_parallel")
        }
        cpu.bind(builder, request, self.host, sizes["tensor_parallel"] * sizes["pipeline_parallel"])
        armed = arming.arm(builder, request, self.host)
        builder.variable(RUN_VARIABLE, self.host.run_directory, "gpudiag attach finds this run by it", "gpudiag")
        return LaunchPlan(
            run_id=self.host.run_id,
            run_directory=self.host.run_directory,
            directories=tuple(dict.fromkeys(builder.directories)),
            engine=request.engine,
            version=self.table.version if self.table is not None else None,
            python=request.python,
            argv=(request.python, "-m", *self.dialect.module, *builder.argv, *builder.words),
            environment=tuple(sorted(builder.environment.items())),
            settings=tuple(builder.settings),
            profile="+".join(p.name for p in chosen) or None,
            model=request.model,
            drafter=drafter[0] if drafter is not None else None,
            host=self._host(),
            port=port_of(request),
            tensor_parallel=sizes["tensor_parallel"],
            pipeline_parallel=sizes["pipeline_parallel"],
            data_parallel=sizes["data_parallel"],
            checkpoint_bytes=_weights(files, drafter),
            ras_address=armed.ras_address,
            flight_pipe=armed.flight_pipe,
            flight_dump=armed.flight_dump,
            kernel_dump_pipe=armed.kernel_dump_pipe,
            notes=tuple(builder.notes),
        )

    def _model(self) -> None:
        request, builder = self.request, self.builder
        if self.dialect.model:
            builder.option(self.dialect.model, request.model, "the model", COMMAND_LINE)
            return
        builder.argv.append(request.model)
        builder.settings.append(Setting(name=MODEL, value=request.model, why="the model", source=COMMAND_LINE))

    def _port(self) -> None:
        given = COMMAND_LINE if self.request.port is not None else f"{self.request.engine}'s usual port"
        self.builder.option(self.dialect.port, str(port_of(self.request)), "where it listens", given)

    def _parallelism(self, chosen: Sequence[Profile]) -> None:
        names, wanted = self.dialect.tensor_parallel, self.request.tensor_parallel
        said = value_of(self.builder.given, names)
        if said is not None and wanted is not None and said != str(wanted):
            raise UsageError(f"--tp {wanted}, and {names[0]} {said} among the engine's arguments", help="leave one of them out")
        if wanted is not None:
            self.builder.option(names, str(wanted), "ranks of one tensor-parallel group", COMMAND_LINE)
            return
        figure = next((p.tensor_parallel for p in chosen if p.tensor_parallel is not None), None)
        if figure is not None and self.host.has_gpu:
            self.builder.option(names, str(figure.value), "ranks of one tensor-parallel group", figure.source, switch="--tp N")

    def _profiles(self, chosen: Sequence[Profile]) -> None:
        for profile in chosen:
            settings = profile.engine(self.request.engine)
            source = f"profile {profile.name}"
            for name, figure in settings.arguments.items():
                if figure.value is False or self._has(name):
                    continue
                value = None if figure.value is True else str(figure.value)
                added = self.builder.option((name,), value, figure.source, source, required=settings.required)
                if added and name == "--trust-remote-code":
                    self.builder.notes.append(
                        f"Python files in the model's directory will be run: --trust-remote-code of {source}"
                    )
            for name, setting in settings.environment.items():
                self.builder.variable(name, str(setting.value), setting.source, source)
            if profile.max_running_requests is not None and not self._has(self.dialect.max_running[0]):
                running = profile.max_running_requests
                self.builder.option(self.dialect.max_running, str(running.value), running.source, source)

    def _has(self, name: str) -> bool:
        """Whether an earlier source has set an option already."""
        return value_of(taken_apart(self.builder.argv, self.table), (name,)) is not None

    def _size(self, names: Sequence[str]) -> int:
        return whole(self.builder.says(names))

    def _host(self) -> str:
        """Where to reach it from here: an address that means 'all of them' is reached on the local one."""
        said = self.builder.says(self.dialect.host)
        return "127.0.0.1" if said in (None, "", "0.0.0.0", "::", "localhost") else said  # noqa: S104  compared, not bound


def _weights(files: ModelFiles | None, drafter: tuple[str, str] | None) -> int | None:
    """Bytes of weights that the server reads; None if the model's files could not be looked at."""
    if files is None:
        return None
    own = 0
    if drafter is not None:
        # The checks say what is wrong with a drafter that cannot be read; here it only is not counted.
        with contextlib.suppress(OSError), os.scandir(drafter[0]) as entries:
            own = sum(e.stat().st_size for e in entries if e.name.endswith((".safetensors", ".bin")) and e.is_file())
    return files.weight_bytes + own
