"""The steps from a request to a plan that was checked: look, ask the engine, resolve, judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from gpudiag.doctor import engine_flags, facts, model_files, probe
from gpudiag.doctor.reads import attempt
from gpudiag.engines.launching import DIALECTS
from gpudiag.engines.words import number_of, taken_apart
from gpudiag.launch import arming, drafters, resolve, speculation
from gpudiag.launch.request import Host, Request
from gpudiag.model.facts import Asked, Facts
from gpudiag.model.flags import FlagTable
from gpudiag.model.modelfiles import Drafter, ModelFiles
from gpudiag.model.reading import Ok, Reading, Unavailable
from gpudiag.model.run import LaunchPlan


class Planned(Struct, frozen=True, kw_only=True):
    """A plan, and the facts that the checks before the start judge."""

    plan: LaunchPlan
    facts: Facts


def make(
    request: Request, host: Host, variables: Mapping[str, str], home: Path, *, say: Callable[[str], None] = lambda _: None
) -> Planned:
    """Look at machine, install, model and drafter, and resolve the request. Raises UsageError for a bad request or profile.

    `say` is told what takes longer than the rest.
    """
    files = _model(request)
    chosen = resolve.profiles_for(request, files, host, variables, home)
    port = resolve.port_of(request)
    # Whether there is a drafter does not depend on the engine's options, and the checks want its files at once.
    early = resolve.Resolver(request, host, None, variables, home).drafter(chosen, files)
    algorithm, own = speculation.own(request)
    named = drafters.directory_of(own, variables, home) if own is not None else request.draft
    asked = Asked(
        engine=request.engine,
        python=request.python,
        model=request.model,
        draft=early[0] if early is not None else named,
        depth="fast",
        ports=(port,),
        context=_context(request),
        algorithm="EAGLE3" if early is not None else algorithm,
    )
    extra = {k: v for k, v in resolve.profile_variables(request, chosen).items() if k not in variables}
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(_table, request, extra)
        try:
            read = facts.read(asked)
            if not asking.done():
                say(f"asking {request.engine} for its options, which imports it; the answer is remembered")
            table = asking.result()
        except BaseException:
            probe.end_all()
            raise
    resolver = resolve.Resolver(request, host, table.value if isinstance(table, Ok) else None, variables, home)
    if not isinstance(table, Ok):
        resolver.builder.notes.append(
            f"options are not checked: {table.reason if isinstance(table, Unavailable) else table.error}"
        )
    drafter = resolver.drafter(chosen, files)
    plan = resolver.plan(chosen, files, drafter, _drafter(read))
    asked = replace(
        asked,
        tp=plan.tensor_parallel,
        pp=plan.pipeline_parallel,
        dp=plan.data_parallel,
        arguments=plan.argv[2 + len(DIALECTS[request.engine].module) :],
    )
    return Planned(plan=plan, facts=replace(read, asked=asked, flags=table))


def _table(request: Request, extra: Mapping[str, str]) -> Reading[FlagTable]:
    return engine_flags.read(request.python, request.engine, ask=arming.ASKED_ABOUT, variables=extra, own_rights=True)


def _context(request: Request) -> int | None:
    """The longest request that the user allows, if he says so: what the drafter must have been trained for (GPD609)."""
    return number_of(taken_apart(request.arguments, None), ("--context-length", "--max-model-len"))


def _model(request: Request) -> ModelFiles | None:
    read = attempt(lambda: model_files.model(request.model))
    return read.value if isinstance(read, Ok) else None


def _drafter(read: Facts) -> Drafter | None:
    return read.drafter.value if isinstance(read.drafter, Ok) else None
