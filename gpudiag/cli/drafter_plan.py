"""gpudiag drafter plan: disk, time and the exact commands to train a drafter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudiag.cli.drawing import drawing, put
from gpudiag.cli.output import Output, output_options
from gpudiag.cli.places import check_directory
from gpudiag.errors import ExitCode, NotInspectableError, UsageError

if TYPE_CHECKING:
    from gpudiag.drafter.plan_numbers import Target
    from gpudiag.model.training_plan import Trainer, TrainingPlan


@click.command()
@click.option("--target", metavar="DIR", required=True, help="Directory of the target model; its config.json is enough.")
@click.option("--with", "trainer", type=click.Choice(["specforge", "speculators"]), required=True, help="Who trains.")
@click.option("--tokens", type=click.IntRange(1), help="Tokens of all conversations together.")
@click.option("--rows", type=click.IntRange(1), help="Instead of --tokens: conversations, of --mean tokens each.")
@click.option("--mean", type=click.IntRange(1), default=1200, show_default=True, help="Tokens of a conversation.")
@click.option("--length", type=click.IntRange(16), default=4096, show_default=True, help="Longest conversation in training.")
@click.option("--gpus", type=click.IntRange(1, 4096), default=8, show_default=True)
@click.option("--tp", type=click.IntRange(1, 1024), default=1, show_default=True, help="GPUs for one copy of the target.")
@click.option(
    "--tflops", type=click.FloatRange(0.001), default=989.0, show_default=True, help="Dense BF16 peak of a GPU (H100, H200)."
)
@click.option("--epochs", type=click.IntRange(1), default=5, show_default=True)
@click.option("--ttt-steps", type=click.IntRange(1, 16), help="Steps of training-time test; default: the trainer's (7 or 3).")
@click.option("--draft-vocab", type=click.IntRange(1), default=32000, show_default=True, help="Size of the draft vocabulary.")
@click.option("--serve-rate", type=click.FloatRange(0.001), metavar="TOK/S", help="What the server generates in all.")
@click.option("--extract-rate", type=click.FloatRange(0.001), metavar="TOK/S", help="Extraction as you measured it.")
@click.option("--train-rate", type=click.FloatRange(0.001), metavar="TOK/S", help="Training as you measured it.")
@click.option("--data", metavar="FILE", default="PROMPTS.jsonl", show_default=True, help="The prompts, for the commands.")
@click.option("--out", metavar="DIR", default="run", show_default=True, help="Where everything is written, for the commands.")
@click.option("--reasoning/--no-reasoning", default=True, show_default=True, help="Keep the target's reasoning in its answers.")
@output_options
def plan(
    *,
    target: str,
    trainer: Trainer,
    tokens: int | None,
    rows: int | None,
    mean: int,
    length: int,
    gpus: int,
    tp: int,
    tflops: float,
    epochs: int,
    ttt_steps: int | None,
    draft_vocab: int,
    serve_rate: float | None,
    extract_rate: float | None,
    train_rate: float | None,
    data: str,
    out: str,
    reasoning: bool,
    output: Output,
) -> int:
    """Say what training a drafter takes, and print the commands.

    Nothing is run: SpecForge and speculators need environments of their own. Each number comes with its formula.
    """
    from gpudiag.drafter import plan as planner
    from gpudiag.drafter.plan_numbers import Work

    if output.format == "markdown":
        raise UsageError("a plan has no Markdown form", help="leave --format out, or --json")
    if (tokens is None) == (rows is None):
        example = f"gpudiag drafter plan --target {target} --with {trainer} --rows 300000"
        raise UsageError("how much data: --tokens or --rows, one of both", help=example)
    about = _target(target)
    work = Work(
        tokens=tokens or (rows or 0) * mean,
        length=length,
        gpus=gpus,
        epochs=epochs,
        ttt_steps=ttt_steps or {"specforge": 7, "speculators": 3}[trainer],
        draft_vocab_size=min(draft_vocab, about.vocab_size),
        tflops=tflops,
        serve_rate=serve_rate,
        extract_rate=extract_rate,
        train_rate=train_rate,
    )
    _show(planner.plan(trainer, about, work, data=data, place=out, reasoning=reasoning, tp=tp), output)
    return ExitCode.OK


def _target(directory: str) -> Target:
    """The target's numbers, or the error that says which is missing."""
    from gpudiag.doctor.model_files import object_in
    from gpudiag.drafter.plan_numbers import target_of

    check_directory("--target", directory, on_hub=True)
    try:
        return target_of(directory, object_in(Path(directory) / "config.json"))
    except OSError as error:
        raise UsageError(f"cannot read {directory}/config.json: {error.strerror}", help=f"ls -l {directory}") from error
    except ValueError as error:
        raise NotInspectableError(str(error), help=f"python3 -m json.tool {directory}/config.json") from error


def _show(made: TrainingPlan, output: Output) -> None:
    if output.format == "json":
        import msgspec

        put(msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n", output)
        return
    from gpudiag.render import training_plan

    put(training_plan.text(made, **drawing(output)), output)
