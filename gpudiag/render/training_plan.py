"""A plan of training as text: numbers with their formulas, what speaks against it, then the commands."""

from __future__ import annotations

from typing import Final

from gpudiag.model.training_plan import Estimate, TrainingPlan
from gpudiag.render.canvas import Canvas
from gpudiag.render.plain import ascii_only, clean
from gpudiag.render.style import BOLD, DIM, PLAIN, SEVERITIES
from gpudiag.rules.preflight.words import size

_PARTS: Final = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"))


def text(plan: TrainingPlan, *, width: int = 80, color: bool = False, plain: bool = False) -> str:
    """Draw a plan. Commands stand on lines of their own, unbroken, so that they can be copied."""
    canvas = Canvas(width, color=color, plain=plain)

    def harmless(words: str) -> str:
        cleaned = clean(words)
        return ascii_only(cleaned) if plain else cleaned

    head = f"gpudiag {plan.gpudiag} drafter plan  {plan.trainer} {plan.version}  "
    canvas.row((head, DIM), (canvas.fit(harmless(plan.target), width - len(head)), PLAIN))
    canvas.rule()
    for one in plan.estimates:
        canvas.paragraph([(f"{one.name:<18}  ", PLAIN)], amount(one), BOLD)
        canvas.paragraph([(" " * 20, PLAIN)], harmless(one.formula), DIM)
    layers = ", ".join(map(str, plan.layers))
    canvas.paragraph([(f"{'layers':<18}  ", PLAIN)], f"inputs of {layers}, and the last hidden state", BOLD)
    for words in plan.warnings:
        look = SEVERITIES["warning"]
        canvas.paragraph([(f"{look.mark(plain=plain)} ", look.color)], harmless(words))
    canvas.rule()
    for number, step in enumerate(plan.steps, 1):
        canvas.paragraph([(f"{number}. ", BOLD)], harmless(step.title), BOLD)
        canvas.row((f"   # {harmless(step.where)}", DIM))
        for line in step.lines:
            canvas.row((f"   {harmless(line)}", PLAIN))
    return canvas.text()


def amount(one: Estimate) -> str:
    """'770 GiB', '1.2 to 4.8 h'."""
    if one.unit == "bytes":
        low, high = size(int(one.low)), size(int(one.high))
        return low if low == high else f"{low} to {high}"
    unit, name = next(((u, n) for u, n in _PARTS if one.high >= u), (1.0, "s"))
    low, high = f"{one.low / unit:.1f}", f"{one.high / unit:.1f}"
    return f"{low} {name}" if low == high else f"{low} to {high} {name}"
