"""Audit of conversations that a drafter is to be trained on: whole, unrepeated, with their reasoning, rightly masked.

A drafter learns the target's own answers. What it is not shown (reasoning that a template leaves out, ends that were cut off)
it cannot draft, and what it is shown twice it knows by heart.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from gpudiag.drafter import audit_kinds as kinds
from gpudiag.drafter.conversations import Row, Turn
from gpudiag.model.audit import AuditFact, AuditItem

TAGS: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<reason>", "</reason>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
"""Tags of reasoning of public models, as pairs."""

PLACES: Final = 5
_CUT: Final = frozenset({"length", "max_tokens"})
_REPEATED: Final = 0.01
_MIXED: Final = 0.05
_CAPPED: Final = 0.02
"""Share of rows of exactly the greatest length above which that length was a limit."""
_KEEPABLE: Final = 4_000_000
"""Rows whose digests are kept to find repeated ones: 16 bytes each, some 400 MB in Python; later ones are not compared."""


class Counts:
    """Counts by name, with the first few lines of each."""

    def __init__(self) -> None:
        self.number: Counter[str] = Counter()
        self.lines: dict[str, list[str]] = {}

    def add(self, name: str, place: int | str) -> None:
        self.number[name] += 1
        kept = self.lines.setdefault(name, [])
        if len(kept) < PLACES:
            kept.append(str(place))


class DataAudit:
    """Takes rows one by one and says at the end what is to be said. Holds counts, line numbers and digests, no text."""

    def __init__(self) -> None:
        self.rows = 0
        self.answers = 0
        self.turns: Counter[int] = Counter()
        self.characters: list[int] = [0, 0]
        self.lengths: Counter[int] = Counter()
        self.trained = 0
        self.tokens = 0
        self.trained_ids: Counter[int] = Counter()
        self.tag: Counter[tuple[str, str]] = Counter()
        self.problems: Counter[str] = Counter()
        self.counts = Counts()
        self._seen: set[bytes] = set()
        self._asked: set[bytes] = set()

    def take(self, one: Row) -> None:
        self.rows += 1
        if one.problem is not None:
            self.problems[one.problem] += 1
            self.counts.add("unreadable", one.line)
            return
        if one.ids is not None:
            self._tokenised(one)
        if one.turns:
            self._conversation(one)
        elif one.rendered is not None:
            self._repeated("row", one.rendered, one.line)
            self._reasoning(one.line, one.rendered, None)

    def _tokenised(self, one: Row) -> None:
        ids, mask = one.ids or (), one.mask
        self.counts.number["tokenised"] += 1
        self.tokens += len(ids)
        self.lengths[len(ids)] += 1
        if not one.turns:
            self._repeated("row", repr(ids), one.line)
        if mask is None:
            self.counts.add("no mask", one.line)
        elif len(mask) != len(ids):
            self.counts.add("mask length", one.line)
        elif not any(mask):
            self.counts.add("nothing trained", one.line)
        elif all(mask):
            self.counts.add("all trained", one.line)
        chosen = [i for i, n in zip(ids, mask, strict=False) if n] if mask is not None else list(ids)
        self.trained += len(chosen)
        self.trained_ids.update(chosen)
        if not ids:
            self.counts.add("no tokens", one.line)

    def _conversation(self, one: Row) -> None:
        self.turns[len(one.turns)] += 1
        said = [t for t in one.turns if t.role == "assistant"]
        if not said:
            self.counts.add("no answer", one.line)
        elif one.turns[-1].role != "assistant":
            self.counts.add("ends without answer", one.line)
        if _out_of_turn(one.turns):
            self.counts.add("out of turn", one.line)
        if one.finish in _CUT or any(t.finish in _CUT for t in said):
            self.counts.add("cut off", one.line)
        if one.finish is not None or any(t.finish is not None for t in said):
            self.counts.number["with finish"] += 1
        self._repeated("row", "\0".join(f"{t.role}\0{t.reasoning or ''}\0{t.content}" for t in one.turns), one.line)
        asked = next((t.content for t in one.turns if t.role == "user"), None)
        if asked is not None:
            self._repeated("question", asked, one.line)
        for turn in said:
            self.answers += 1
            self.characters[0] += len(turn.content)
            self.characters[1] += len(turn.reasoning or "")
            if not turn.content.strip() and not (turn.reasoning or "").strip() and not turn.calls_tools:
                self.counts.add("empty answer", one.line)
            self._reasoning(one.line, turn.content, turn.reasoning)

    def _reasoning(self, line: int, text: str, apart: str | None) -> None:
        """Tags of reasoning in one answer, or in one rendered text."""
        found = [(pair, text.count(pair[0]), text.count(pair[1])) for pair in TAGS if pair[0] in text or pair[1] in text]
        if apart is not None and apart.strip():
            self.counts.add("with reasoning", line)
            if found:
                self.counts.add("reasoning twice", line)
            return
        if not found:
            self.counts.add("without reasoning", line)
            return
        pair, opened, closed = found[0]
        self.tag[pair] += 1
        self.counts.add("with reasoning", line)
        if opened > closed:
            self.counts.add("never closed", line)
        elif closed > opened:
            # Templates that begin the answer with the opening tag leave only the closing one to the model.
            self.counts.add("never opened", line)
        if not text.partition(pair[0])[2].partition(pair[1])[0].strip() and opened:
            self.counts.add("empty reasoning", line)

    def _repeated(self, what: str, text: str, line: int) -> None:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        seen = self._seen if what == "row" else self._asked
        if digest in seen:
            self.counts.add(f"{what} repeated", line)
        elif len(seen) < _KEEPABLE:
            seen.add(digest)

    def facts(self) -> Iterator[AuditFact]:
        yield AuditFact(name="rows", value=f"{self.rows:,}")
        if self.turns:
            total = sum(n * count for n, count in self.turns.items())
            yield AuditFact(name="turns", value=f"{total:,}, {min(self.turns)} to {max(self.turns)} a row")
            yield AuditFact(
                name="answers", value=f"{self.answers:,}, of {self.characters[0] / max(1, self.answers):,.0f} characters each"
            )
        reasoning = self.counts.number["with reasoning"]
        if reasoning:
            tags = ", ".join(f"{a}...{b}" for (a, b), _ in self.tag.most_common(2)) or "in a field of its own"
            yield AuditFact(
                name="reasoning", value=f"in {reasoning:,} of {reasoning + self.counts.number['without reasoning']:,}; {tags}"
            )
        tokenised = self.counts.number["tokenised"]
        if tokenised:
            share = f"{self.trained / self.tokens:.0%} of them trained" if self.tokens else "none"
            yield AuditFact(
                name="tokens", value=f"{self.tokens:,}, {share}; longest {max(self.lengths):,}, median {self._median():,}"
            )

    def _median(self) -> int:
        half, passed = sum(self.lengths.values()) / 2, 0
        for length in sorted(self.lengths):
            passed += self.lengths[length]
            if passed >= half:
                return length
        return 0

    def items(self) -> Iterator[AuditItem]:
        number, lines = self.counts.number, self.counts.lines
        reasoning = number["with reasoning"]
        totals = {
            "rows": self.rows,
            "conversations": sum(self.turns.values()),
            "answers": self.answers,
            "reasoning": reasoning,
            "tokenised": number["tokenised"],
            "answers told": reasoning + number["without reasoning"],
        }
        yield from kinds.items(kinds.DATA, number, totals, lines)
        opened = kinds.NEVER_OPENED_MIXED if number["never opened"] < (1 - _MIXED) * reasoning else kinds.NEVER_OPENED_ALWAYS
        chosen = [opened]
        if reasoning and number["without reasoning"] > _MIXED * totals["answers told"]:
            chosen.append(kinds.WITHOUT_REASONING)
        if number["question repeated"] > number["row repeated"] + _REPEATED * self.rows:
            chosen.append(kinds.QUESTION_REPEATED)
        yield from kinds.items(chosen, number, totals, lines)
        yield from self._same_length()

    def _same_length(self) -> Iterator[AuditItem]:
        longest, total = max(self.lengths, default=0), sum(self.lengths.values())
        if longest > 1 and self.lengths[longest] > max(2, _CAPPED * total):
            yield AuditItem(
                name="same length",
                severity="warning",
                title=f"rows have exactly the greatest length, {longest:,} tokens: they were cut off there",
                count=self.lengths[longest],
                of=total,
                next_step="raise the length limit of the preparation, or drop these rows",
            )


def _out_of_turn(turns: tuple[Turn, ...]) -> bool:
    """Whether the same side speaks twice. An assistant that calls a tool and goes on after its result does not."""
    spoken = [t.role for t in turns if t.role in ("user", "assistant", "tool")]
    return any(a == b and a != "tool" for a, b in pairwise(spoken))
