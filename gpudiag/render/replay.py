"""A replay as text: what the server accepts beside what the drafter can, who explains the difference, and where it is weak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpudiag.model.replay import Candidate, Context, DraftCounts, ReplayReport, Section
from gpudiag.render.canvas import Canvas, pad
from gpudiag.render.plain import ascii_only, clean
from gpudiag.render.safe import safe
from gpudiag.render.style import BOLD, CONFIDENCES, DIM, PLAIN, SEVERITIES, STATUSES

_SHOWN: Final = 5
_FROM: Final = {
    "rounds": "round by round",
    "histograms": "by request",
    "counters": "by its counters",
    "given": "as given",
}


def text(report: ReplayReport, *, width: int = 80, color: bool = False, plain: bool = False, verbose: bool = False) -> str:
    """Draw the report of a replay. `verbose` shows every way of serving that was tried."""
    canvas = Canvas(width, color=color, plain=plain)
    page = _Page(report, canvas, plain, verbose)
    page.draw()
    return canvas.text()


class _Page:
    def __init__(self, report: ReplayReport, canvas: Canvas, plain: bool, verbose: bool) -> None:
        self.report, self.canvas, self.plain, self.verbose = report, canvas, plain, verbose
        self.replay = report.replay

    def draw(self) -> None:
        canvas, replay = self.canvas, self.replay
        canvas.ends(
            [(f"gpudiag {self.report.gpudiag} {self.report.command}", DIM), (f"  {self._say(self.report.host)}", PLAIN)],
            (self.report.generated_at, DIM),
        )
        canvas.rule()
        self._verdict()
        canvas.rule()
        shape = (
            f"{replay.steps} steps"
            if replay.topk == 1
            else f"{replay.steps} steps, topk {replay.topk}, {replay.draft_tokens} tokens"
        )
        if replay.window is not None:
            shape += f", the last {replay.window} tokens in sight"
        canvas.paragraph(
            [],
            f"{replay.texts} texts, {replay.tokens} tokens, {shape}; layers {', '.join(map(str, replay.learnt_layers))}; "
            f"{replay.dtype} on {replay.device}, {replay.took_s:.0f} s",
            DIM,
        )
        self._counts()
        if self.verbose or (replay.measured is not None and len(replay.candidates) > 1):
            self._candidates(replay.candidates)
        self._sections(replay.sections)
        self._contexts(replay.contexts)

    def _verdict(self) -> None:
        canvas = self.canvas
        shown = safe(self.report, plain=self.plain)
        if not shown.findings:
            look = STATUSES[shown.verdict.status]
            canvas.paragraph([(f"{look.mark(plain=self.plain)} ", look.color)], shown.verdict.title, BOLD)
            if shown.verdict.next_step:
                canvas.paragraph([("  next  ", DIM)], shown.verdict.next_step)
            return
        for found in shown.findings:
            look = SEVERITIES[found.severity]
            canvas.paragraph(
                [(f"{look.mark(plain=self.plain)} {found.code} ", look.color)],
                found.title,
                BOLD,
                right=(found.confidence, CONFIDENCES[found.confidence]),
            )
            for number, evidence in enumerate(found.evidence):
                canvas.paragraph([("  why   " if number == 0 else "        ", DIM)], evidence.claim)
            for number, step in enumerate(found.next_steps):
                canvas.paragraph([("  next  " if number == 0 else "        ", DIM)], step)

    def _counts(self) -> None:
        replay, canvas = self.replay, self.canvas
        canvas.blank()
        canvas.row((pad("", 28) + pad("length", 16) + "accepted at position 1, 2, ...", DIM))
        if replay.measured is not None:
            self._row(f"measured, {_FROM.get(replay.measured_from, '')}", replay.measured, "")
        self._row("replayed as trained", replay.replayed, f" {replay.low:.2f}-{replay.high:.2f}")
        if replay.covered < 1:
            canvas.row((f"  {100 * replay.covered:.1f} % of the answers' tokens are in the draft vocabulary", DIM))
        if replay.own_choice < 1:
            canvas.row((f"  {100 * replay.own_choice:.1f} % of them are the target's own first choice, computed here", DIM))

    def _row(self, label: str, found: DraftCounts, extra: str, note: str = "", style: str = PLAIN) -> None:
        numbers = " ".join(f"{s:.3f}" for s in found.survival[:8])
        self.canvas.row((pad(f"  {label}", 28) + pad(f"{found.length:.3f}{extra}", 16) + numbers + note, style))

    def _candidates(self, candidates: Sequence[Candidate]) -> None:
        canvas = self.canvas
        canvas.blank()
        exact = any(c.agrees is not None for c in candidates)
        canvas.row(
            (
                pad("served so, it would accept", 30)
                + pad("length", 9)
                + pad("times less likely", 19)
                + ("rounds" if exact else ""),
                DIM,
            )
        )
        for number, c in enumerate(candidates if self.verbose else candidates[:_SHOWN]):
            times = "" if c.times_less_likely is None else _times(c.times_less_likely)
            share = f"{100 * c.agrees:.1f} % exact" if c.agrees is not None else ""
            style = BOLD if number == 0 and c.times_less_likely is not None else PLAIN
            canvas.row((pad(f"  {self._say(c.name)}", 30) + pad(f"{c.replayed.length:.3f}", 9) + pad(times, 19) + share, style))
        hidden = len(candidates) - _SHOWN
        if hidden > 0 and not self.verbose:
            canvas.row((f"  and {hidden} others; --verbose shows them", DIM))

    def _sections(self, sections: Sequence[Section]) -> None:
        for by in dict.fromkeys(s.by for s in sections):
            self.canvas.blank()
            self.canvas.row((pad(f"by {by}", 28) + pad("length", 16) + "accepted at position 1, 2, ...", DIM))
            for section in (s for s in sections if s.by == by):
                self._row(self._say(section.name)[:24], section.acceptance, "", f"   {section.acceptance.rounds} rounds")

    def _contexts(self, contexts: Sequence[Context]) -> None:
        for context in contexts:
            self.canvas.blank()
            self.canvas.row((pad(f"from position {context.since} on", 28) + "length", DIM))
            self._row("seeing all of the text", context.whole, "")
            self._row(f"seeing the last {context.window}", context.cut, "")

    def _say(self, words: str) -> str:
        cleaned = clean(words)
        return ascii_only(cleaned) if self.plain else cleaned


def _times(times: float) -> str:
    if times <= 1.0:
        return "the most likely"
    return "> 1,000,000" if times > 1e6 else f"{times:,.1f}" if times < 10 else f"{times:,.0f}"
