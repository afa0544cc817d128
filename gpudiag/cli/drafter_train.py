"""gpudiag drafter train: does a short training on a server's own answers lift a drafter?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
import msgspec

from gpudiag import __version__
from gpudiag.cli.drafter_replay import layers_of
from gpudiag.cli.output import say
from gpudiag.cli.places import check_directory, program
from gpudiag.cli.progress import bar
from gpudiag.cli.texts_source import Source, source_options, texts_of
from gpudiag.drafter.train import DIALECTS, Dialect
from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from gpudiag.drafter.train import Plan
    from gpudiag.model.replay import Replay, Text, Trained, TrainResult


@click.command()
@click.argument("source", metavar="URL|FILE")
@click.option("--target", metavar="DIR", required=True, help="Directory of the target model, the one that is served.")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where drafter and state go.")
@source_options
@click.option("--from", "start", metavar="DRAFT", help="Fine-tune this drafter; default: begin with random weights.")
@click.option("--dialect", "dialects", type=click.Choice(get_args(Dialect)), multiple=True, help="Default: sglang and vllm.")
@click.option("--steps", type=click.IntRange(1), default=600, show_default=True, help="Optimizer steps.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Stop after this time if the steps take longer.")
@click.option("--batch", type=click.IntRange(1), default=8, show_default=True, help="Texts of a step, on each GPU.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Learning rate; default: 1e-3, 2e-4 for a fine-tune.")
@click.option("--context", type=click.IntRange(16), default=2048, show_default=True, help="Most tokens of a text read at a time.")
@click.option("--unroll", type=click.IntRange(1, 16), default=4, show_default=True, help="Drafts of a round that are trained.")
@click.option("--vocabulary", type=click.IntRange(16), help="Size of the draft vocabulary; default: at most 32000.")
@click.option("--layers", metavar="N,N,N", help="Layers whose input it reads; default: 2, n/2, n-3, or those of --from.")
@click.option("--resume", is_flag=True, help="Go on with the training in --out.")
@click.option("--python", metavar="PATH", help="An interpreter that has torch; default: ours, else the server's.")
@click.option("--device", default="auto", show_default=True, help="Where torch computes: cpu, cuda.")
@click.option("--ranks", type=click.IntRange(1, 64), help="Processes, one a GPU; default: all GPUs.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def train(
    *,
    source: str,
    target: str,
    out: Path,
    wanted: Source,
    start: str | None,
    dialects: tuple[Dialect, ...],
    steps: int,
    minutes: float | None,
    batch: int,
    rate: float | None,
    context: int,
    unroll: int,
    vocabulary: int | None,
    layers: str | None,
    resume: bool,
    python: str | None,
    device: str,
    ranks: int | None,
    as_json: bool,
) -> int:
    """Train a small EAGLE-3 drafter on a server's own answers, and say by replay how much of them it would have accepted.

    A probe for tiny targets and minutes, no trainer for production. Each tenth text is kept back: it is replayed before and
    after, so that what is reported was not learnt by heart. A fine-tune that lifts the replay and not the server points at the
    integration.
    """
    from gpudiag.drafter import torch_child
    from gpudiag.drafter import train as training

    check_directory("--target", target, on_hub=True)
    check_directory("--from", start, on_hub=True)
    named = layers_of(layers)
    chosen = torch_child.choose(program(python, "gpudiag drafter train") if python else None, "drafter train")
    texts = texts_of(source, wanted).texts
    learnt, kept = training.held_out(texts)
    plan = training.Plan(
        target=target,
        out=out,
        start=start,
        dialects=dialects or DIALECTS[:2],
        steps=steps,
        limit_s=minutes * 60 if minutes else None,
        batch=batch,
        rate=rate or (2e-4 if start else 1e-3),
        context=context,
        unroll=unroll,
        vocabulary=vocabulary,
        layers=named,
        resume=resume,
        device=device,
        ranks=ranks,
    )
    say(f"training on {len(learnt)} texts, {sum(len(t.answer) for t in learnt)} tokens; {len(kept)} texts kept back")
    try:
        with bar("train", unit="steps") as progress:
            trained = training.train(plan, learnt, python=chosen, progress=lambda e: progress(e | {"note": _note(e)}))
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}", help="name another directory after --out") from None
    result = _judged(plan, trained, kept, chosen)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        _show(result, len(kept))
    return 0


def _note(event: dict[str, object]) -> str:
    return f"loss {event.get('loss')}, {event.get('rate')} tokens/s"


def _judged(plan: Plan, trained: Trained, kept: tuple[Text, ...], python: str) -> TrainResult:
    """With the replays of what was kept back: by the drafter that training began with, and by the one it made."""
    from gpudiag.model.replay import TrainResult

    made = next(iter(trained.drafters.values()))
    return TrainResult(
        gpudiag=__version__,
        trained=trained,
        before=_replayed(plan, plan.start, kept, python) if plan.start and kept else None,
        after=_replayed(plan, made, kept, python) if kept else None,
    )


def _replayed(plan: Plan, draft: str, kept: tuple[Text, ...], python: str) -> Replay:
    from gpudiag.drafter.replay import Order, replay

    order = Order(
        draft=draft, target=plan.target, steps=3, layers=plan.layers, device=plan.device, dtype=plan.dtype, healthy_only=True
    )
    with bar("replay", unit="texts") as progress:
        return replay(order, kept, python=python, progress=progress)


def _show(result: TrainResult, kept: int) -> None:
    from gpudiag.rules.drafter.replayed import numbers

    trained = result.trained
    place = f"{trained.ranks} x {trained.device}" if trained.ranks > 1 else trained.device
    click.echo(
        f"{trained.steps} steps, {trained.tokens} tokens in {trained.took_s:.0f} s ({trained.rate:.0f} tokens/s on {place}), "
        f"loss {trained.loss:.3f}, {trained.parameters / 1e6:.2f} M parameters"
    )
    for label, replayed in (("before", result.before), ("after", result.after)):
        if replayed is not None:
            spread = f"95 % {replayed.low:.2f}-{replayed.high:.2f}"
            click.echo(f"{label:<7} {numbers(replayed.replayed)} tokens a round on {kept} texts kept back, {spread}")
    if not kept:
        click.echo("fewer than 10 texts: none was kept back to judge by")
    for dialect, directory in trained.drafters.items():
        click.echo(f"{dialect:<12} {directory}")
