"""The part of an audit of conversations that needs the target's tokenizer: its template against the rows, and coverage."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gpudiag.doctor import probe
from gpudiag.doctor.drafter_files import draft_vocabulary
from gpudiag.doctor.install import absolute
from gpudiag.drafter import audit_kinds as kinds
from gpudiag.drafter.audit_data import TAGS
from gpudiag.drafter.conversations import Row
from gpudiag.model.audit import AuditFact, AuditItem
from gpudiag.model.reading import Ok, Reading, Unavailable

_LIMIT_S: Final = 120.0
_LOW: Final = 0.80
_ENOUGH: Final = 1000
"""Tokens below which a share says nothing."""
_SHOWN: Final = 6


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """What the probe counted over a sample of rows. Token counts by id, `pieces` the vocabulary's entries for them."""

    template: bool
    counts: dict[str, int]
    lines: dict[str, list[int]]
    errors: list[str]
    lengths: list[int]
    tokens: dict[str, dict[str, int]]
    pieces: dict[str, str]


def render(sample: Sequence[Row], target: str, python: str) -> Reading[Rendered]:
    """These rows through the target's own tokenizer and template, in an interpreter that has transformers."""
    with tempfile.TemporaryDirectory(prefix="gpudiag-") as place:
        file = Path(place, "rows.jsonl")
        file.write_bytes(b"".join(msgspec.json.encode(_plain(one)) + b"\n" for one in sample))
        who = probe.owner(python)
        if isinstance(who, int):
            # The probe runs as another user, who alone may read what people asked.
            os.chown(place, who, -1)
            os.chown(file, who, -1)
        request = json.dumps({"target": str(Path(target).absolute()), "rows": str(file), "closing": [end for _, end in TAGS]})
        answer = probe.run("render_conversations", [request], python=absolute(python), limit_s=_LIMIT_S)
    if not isinstance(answer, Ok):
        return answer
    if not answer.value.get("ok"):
        return Unavailable(
            reason=f"the tokenizer of {target} could not be used there: {answer.value.get('failed')}",
            help="gpudiag drafter audit-data FILE --target DIR --python /path/to/venv/bin/python (one that has transformers)",
        )
    try:
        return Ok(value=msgspec.convert(answer.value, Rendered), at=answer.at, took_s=answer.took_s)
    except msgspec.ValidationError as error:
        return Unavailable(reason=f"the probe's answer is not as expected: {error}", help="")


def _plain(one: Row) -> dict[str, Any]:
    turns = [{"role": t.role, "content": t.content, "reasoning": t.reasoning} for t in one.turns]
    return {"line": one.line, "turns": turns, "rendered": one.rendered, "ids": one.ids}


def template_items(found: Rendered) -> Iterator[AuditItem]:
    """Where the template and the rows disagree."""
    if not found.template:
        yield AuditItem(
            name="no template",
            severity="info",
            title="the target has no chat template: what a server would make of these rows is not known",
            count=1,
            of=1,
        )
        return
    totals = {**found.counts, "with answers": found.counts.get("with reasoning", 0) + found.counts.get("plain", 0)}
    for kind in kinds.TEMPLATE:
        why = found.errors[0] if kind.name == "refused" and found.errors else ""
        places = found.lines.get(kind.name, ())
        yield from kinds.item(kind, found.counts.get(kind.name, 0), totals.get(kind.of, 0), places, why)


def length_facts(found: Rendered, positions: int | None) -> Iterator[AuditFact | AuditItem]:
    """How long the rows are in the target's tokens, and how many are longer than the drafter."""
    lengths = found.lengths
    if not lengths:
        return
    middle = lengths[len(lengths) // 2]
    yield AuditFact(name="length", value=f"{middle:,} tokens in the middle, {lengths[-1]:,} at most (of {len(lengths)} rows)")
    longer = sum(n > positions for n in lengths) if positions else 0
    if positions and longer:
        yield AuditItem(
            name="longer than the drafter",
            severity="warning",
            title=f"rows are longer than the drafter's {positions:,} positions",
            count=longer,
            of=len(lengths),
            next_step="raise max_position_embeddings of the drafter's configuration before training, or cut the rows",
        )


def coverage(
    counted: Mapping[str, Mapping[int, int]], pieces: Mapping[int, str], draft: str | None
) -> Iterator[AuditFact | AuditItem]:
    """Share of the answers' tokens that the draft vocabulary has: no first draft can be accepted more often than that."""
    known = draft_vocabulary(Path(draft)) if draft else None
    if known is None:
        return
    for part, tokens in counted.items():
        total = sum(tokens.values())
        if not total:
            continue
        inside = sum(n for i, n in tokens.items() if i in known)
        share = inside / total
        missing = Counter({i: n for i, n in tokens.items() if i not in known}).most_common(_SHOWN)
        worst = ", ".join(f"{pieces.get(i) or i} x{n}" for i, n in missing)
        yield AuditFact(
            name=f"coverage, {part}", value=f"{share:.1%} of {total:,} tokens" + (f"; most missed: {worst}" if worst else "")
        )
        if share < _LOW and total >= _ENOUGH:
            yield AuditItem(
                name=f"coverage, {part}",
                severity="warning",
                title=f"tokens of the {part} are outside the draft vocabulary: at best {share:.0%} of first drafts are right",
                count=total - inside,
                of=total,
                next_step="build the vocabulary map again from these answers, or use a larger draft_vocab_size",
            )
