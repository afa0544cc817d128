"""gpudiag drafter audit-states: are extracted hidden states fit to train a drafter on?"""

from __future__ import annotations

from pathlib import Path

import click

from gpudiag.cli.drafter_audit import check_format, show_audit, teller
from gpudiag.cli.output import Output, output_options
from gpudiag.cli.places import check_directory, program
from gpudiag.cli.progress import bar
from gpudiag.errors import NotInspectableError, UsageError


@click.command("audit-states")
@click.argument("states", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--target", metavar="DIR", help="Directory of the target: its width and its vocabulary.")
@click.option("--layers", type=click.IntRange(1, 64), help="Layers in each file, the last hidden state included.")
@click.option("--tokens", type=click.IntRange(1), help="Tokens of the whole run: how far it is, and when it will be done.")
@click.option("--limit", type=click.IntRange(1), metavar="FILES", help="Look at the first files only.")
@click.option("--forward", is_flag=True, help="Compare the first files with a forward pass of --target: which layers they are.")
@click.option("--expect", metavar="IDS", help="For --forward: the layers that training takes them for, e.g. 2,30,58.")
@click.option("--python", metavar="PATH", help="For --forward: an interpreter that has torch.")
@click.option("--device", default="auto", show_default=True, help="For --forward: cpu, cuda, cuda:1.")
@output_options
def audit_states(
    *,
    states: Path,
    target: str | None,
    layers: int | None,
    tokens: int | None,
    limit: int | None,
    forward: bool,
    expect: str | None,
    python: str | None,
    device: str,
    output: Output,
) -> int:
    """Check hidden states that SpecForge or speculators extracted.

    Every number is read once, without torch; also while they are being written. With --forward the target is loaded, in a child
    process with torch, to say which of its layers they are.
    """
    from gpudiag.doctor import model_files
    from gpudiag.drafter import audit_states as auditor
    from gpudiag.drafter import torch_child
    from gpudiag.drafter.audit_forward import with_forward

    check_directory("", str(states), on_hub=False)
    check_directory("--target", target, on_hub=True)
    check_format(output)
    if forward and target is None:
        raise UsageError("--forward compares with a target, and none is named", help="--target DIR")
    meant = _ids(expect)
    chosen = (
        torch_child.choose(program(python, "gpudiag drafter audit-states") if python else None, "drafter audit-states")
        if forward
        else ""
    )
    expected = auditor.Expected(layers=layers, tokens=tokens)
    try:
        if target is not None:
            config = model_files.config(Path(target))
            expected = auditor.Expected(
                hidden_size=config.hidden_size, vocab_size=config.vocab_size, layers=layers, tokens=tokens
            )
    except (OSError, ValueError) as error:
        raise NotInspectableError(f"--target {target}: {error}", help=f"ls -l {target}") from error
    try:
        found = auditor.run(states, expected, limit=limit, tell=teller("files"))
    except OSError as error:
        raise UsageError(f"cannot read {error.filename or states}: {error.strerror}", help=f"ls -lR {states}") from error
    if not found.rows and not found.not_read:
        raise UsageError(f"{states} has no hidden states (*.safetensors, *.ckpt)", help=f"ls -R {states}")
    if target is not None and forward and found.rows:
        with bar("compare", unit="files") as progress:
            found = with_forward(found, states, target, python=chosen, device=device, progress=progress, expect=meant)
    return show_audit(found, output, {})


def _ids(text: str | None) -> tuple[str, ...]:
    """Layers as they are typed; nothing for none."""
    parts = tuple(part.strip() for part in text.split(",")) if text is not None else ()
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--expect {text}: no layers", help="--expect 2,30,58")
    return parts
