"""An audit of training data as text: what was counted, then what is wrong, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gpudiag.model.audit import Audit, AuditItem
from gpudiag.model.finding import SEVERITY_ORDER
from gpudiag.render.canvas import Canvas
from gpudiag.render.plain import ascii_only, clean
from gpudiag.render.style import BOLD, DIM, PLAIN, SEVERITIES, STATUSES

Harmless = Callable[[str], str]

_COMMANDS: Final = {"data": "drafter audit-data", "states": "drafter audit-states"}
_PLACES: Final = {"data": "line", "states": "file"}


def text(
    audit: Audit, *, width: int = 80, color: bool = False, plain: bool = False, excerpts: Mapping[str, str] | None = None
) -> str:
    """Draw an audit. `excerpts` are beginnings of rows by line number, for who asked to see them."""
    canvas = Canvas(width, color=color, plain=plain)

    def harmless(words: str) -> str:
        cleaned = clean(words)
        return ascii_only(cleaned) if plain else cleaned

    head = f"gpudiag {audit.gpudiag} {_COMMANDS[audit.kind]}  "
    canvas.row((head, DIM), (canvas.fit(harmless(audit.path), width - len(head)), PLAIN))
    canvas.rule()
    indent = max((len(fact.name) for fact in audit.facts), default=0) + 4
    for fact in audit.facts:
        canvas.paragraph([(f"  {fact.name}".ljust(indent), DIM)], harmless(fact.value))
    canvas.rule()
    for item in sorted(audit.items, key=lambda one: (-SEVERITY_ORDER[one.severity], -one.count)):
        _item(canvas, audit, item, harmless, excerpts or {})
    for missing in audit.not_read:
        look = STATUSES["insufficient"]
        canvas.paragraph([(f"{look.mark(plain=plain)} ", look.color)], harmless(f"{missing.source} not known: {missing.reason}"))
        if missing.help:
            canvas.paragraph([(f"      {canvas.lines.arrow} ", DIM)], f"`{harmless(missing.help)}`", DIM)
    _summary(canvas, audit, plain)
    return canvas.text()


def _item(canvas: Canvas, audit: Audit, item: AuditItem, harmless: Harmless, excerpts: Mapping[str, str]) -> None:
    look = SEVERITIES[item.severity]
    share = f"{item.count:,} of {item.of:,}"
    canvas.paragraph([(f"{look.mark(plain=canvas.plain)} {share}  ", look.color)], harmless(item.title))
    if item.places:
        more = " ..." if item.count > len(item.places) else ""
        one = len(item.places) == 1 and not more
        word = _PLACES[audit.kind] + ("" if one else "s")
        canvas.paragraph([("      ", DIM)], harmless(f"{word} {', '.join(item.places)}{more}"), DIM)
    for place in item.places:
        if place in excerpts:
            canvas.paragraph(
                [(f"      {canvas.lines.quote}", DIM)],
                canvas.fit(harmless(excerpts[place])[: canvas.width - 10], canvas.width - 10),
                DIM,
            )
    if item.next_step:
        canvas.paragraph([(f"      {canvas.lines.arrow} ", DIM)], harmless(item.next_step))


def _summary(canvas: Canvas, audit: Audit, plain: bool) -> None:
    if audit.items or audit.not_read:
        canvas.rule()
    severities = [item.severity for item in audit.items]
    worst = max(severities, key=SEVERITY_ORDER.__getitem__, default=None)
    look = SEVERITIES[worst] if worst is not None else STATUSES["healthy"]
    counts = ((severities.count("error"), "error"), (severities.count("warning"), "warning"), (severities.count("info"), "note"))
    said = ", ".join(f"{n} {word}" if n == 1 else f"{n} {word}s" for n, word in counts if n)
    canvas.paragraph([(f"{look.mark(plain=plain)} ", look.color)], said or "Nothing found", BOLD)
    part = "" if audit.complete else "; only a part was looked at"
    canvas.row((f"  took {audit.took_s:.1f} s{part}", DIM if audit.complete else PLAIN))
