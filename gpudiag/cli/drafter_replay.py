"""gpudiag drafter replay: what would this drafter have had accepted on the server's own texts, and why has it less?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from gpudiag import __version__
from gpudiag.cli.drawing import drawing, put
from gpudiag.cli.exits import exit_code
from gpudiag.cli.output import Output, emit, output_options, say
from gpudiag.cli.places import check_directory, program
from gpudiag.cli.progress import bar
from gpudiag.cli.texts_source import Source, source_options, texts_of
from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from gpudiag.drafter.fit import Measured
    from gpudiag.drafter.replay import Order
    from gpudiag.model.replay import Replay, Text

MOST_STEPS: Final = 16


@click.command()
@click.argument("draft", metavar="DRAFT")
@click.argument("source", metavar="URL|FILE")
@click.option("--target", metavar="DIR", required=True, help="Directory of the target model, the one that is served.")
@source_options
@click.option("--steps", type=click.IntRange(1, MOST_STEPS), help="Drafts of a round; default: what the server says, else 3.")
@click.option("--topk", type=click.IntRange(1, 16), default=1, show_default=True, help="SGLang's --speculative-eagle-topk.")
@click.option("--draft-tokens", type=click.IntRange(2, 256), help="SGLang's --speculative-num-draft-tokens, for a tree.")
@click.option(
    "--window", type=click.IntRange(1, 1 << 24), help="SGLang's --speculative-draft-window-size; default: what the server says."
)
@click.option("--layers", metavar="N,N,N", help="Layers whose input the drafter learnt on, where its files do not say it.")
@click.option("--measured", metavar="ROUNDS:S1,S2,...", help="What the server accepts, by position, where FILE does not say it.")
@click.option("--python", metavar="PATH", help="An interpreter that has torch; default: ours, else the server's.")
@click.option("--device", default="auto", show_default=True, help="Where torch computes: cpu, cuda, cuda:1.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Default: as the target is stored.")
@click.option("--no-faults", is_flag=True, help="Only replay the drafter as it was trained; much faster.")
@click.option("-v", "--verbose", is_flag=True, help="Show every way of serving that was tried.")
@output_options
def replay(
    *,
    draft: str,
    source: str,
    target: str,
    wanted: Source,
    steps: int | None,
    topk: int,
    draft_tokens: int | None,
    window: int | None,
    layers: str | None,
    measured: str | None,
    python: str | None,
    device: str,
    dtype: str | None,
    no_faults: bool,
    verbose: bool,
    output: Output,
) -> int:
    """Replay a drafter on texts of a running server, and say whether the drafter or its integration is at fault.

    The texts are token ids: those of a server at URL, which is asked to answer prompts, or those of a FILE that --save wrote.
    torch computes, in a child process, which drafts the drafter makes at each place and which of them the text confirms. A
    server that accepts fewer serves the drafter otherwise than it was trained: the known ways to do so are replayed as well, and
    the one that explains the server's counts is named.

    A drafter that is accepted at temperature 0 is replayed exactly; at any temperature where drafts are greedy, as is usual.
    """
    from gpudiag.drafter import torch_child
    from gpudiag.drafter.replay import Order
    from gpudiag.drafter.replay import replay as run

    check_directory("", draft, on_hub=True)
    check_directory("--target", target, on_hub=True)
    given = _measured(measured)
    named = layers_of(layers)
    chosen = torch_child.choose(program(python, "gpudiag drafter replay") if python else None, "drafter replay")
    found = texts_of(source, wanted)
    order = Order(
        draft=draft,
        target=target,
        steps=steps or found.steps or _steps_in(found.texts, given) or 3,
        topk=topk if topk > 1 else found.topk,
        draft_tokens=draft_tokens or found.draft_tokens,
        window=window or found.window,
        layers=named,
        device=device,
        dtype=dtype,
        healthy_only=no_faults,
    )
    _check(order)
    say(f"replaying {len(found.texts)} texts with {chosen}")
    with bar("replay", unit="texts") as progress:
        result = run(order, found.texts, python=chosen, progress=progress, counted=given or found.counted)
    return _finish(result, output, verbose=verbose)


def _finish(result: Replay, output: Output, *, verbose: bool) -> int:
    from gpudiag.drafter.replay_report import report_of

    report = report_of(result, version=__version__)
    if output.format == "text":
        from gpudiag.render.replay import text

        put(text(report, verbose=verbose, **drawing(output)), output, found=bool(report.findings))
    else:
        emit([report], output)
    return exit_code(report, output.fail_on, partial=report.verdict.status == "insufficient")


def _steps_in(texts: tuple[Text, ...], given: Measured | None) -> int | None:
    """Drafts of a round, from what was counted. SGLang's histograms end at the last entry that is not 0, vLLM's do not."""
    if given is not None:
        return len(given.total.at)
    longest = max((len(t.histogram) - 1 for t in texts if t.histogram), default=0)
    return max([longest, *(n for t in texts for n in t.rounds or ())]) or None


def _measured(text: str | None) -> Measured | None:
    if text is None:
        return None
    from gpudiag.drafter.replay import given

    rounds, _, rest = text.partition(":")
    try:
        survival = [float(s) for s in rest.split(",")]
        count = int(rounds)
    except ValueError:
        count, survival = 0, []
    falling = all(0 <= b <= a <= 1 for a, b in zip([1.0, *survival], survival, strict=False))
    if count < 1 or not 0 < len(survival) <= 16 or not falling:
        raise UsageError(
            f"--measured {text}: no number of rounds with a falling share for each position",
            help="--measured 1500:0.751,0.567,0.453, as vLLM logs its Per-position acceptance rate",
        )
    return given(count, survival)


def layers_of(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(int(n) for n in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 0:
        raise UsageError(f"--layers {text}: no list of layers", help="--layers 2,30,58: each is the layer whose input is read")
    return found


def _check(order: Order) -> None:
    if order.steps > MOST_STEPS:
        raise UsageError(
            f"{order.steps} drafts a round are more than a replay takes", help=f"--steps {MOST_STEPS} replays the first ones"
        )
    if order.topk > 1 and order.draft_tokens is None:
        raise UsageError(
            "--topk above 1 makes a tree, and how many of its nodes are verified is not said", help="--draft-tokens N"
        )
    if order.topk == 1 and order.draft_tokens is not None and order.draft_tokens != order.steps + 1:
        raise UsageError(
            f"a chain of {order.steps} drafts verifies {order.steps + 1} tokens, not {order.draft_tokens}",
            help=f"--steps {order.draft_tokens - 1}, or --topk for a tree",
        )
