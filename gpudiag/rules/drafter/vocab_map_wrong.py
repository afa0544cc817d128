"""GPD603 before a start: the drafter's ids are not mapped to the target's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.rules.drafter.pair import Pair, engines, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import listing, plural, version

_REFUSED_SINCE: Final = (0, 31)
_SYMPTOM: Final = "until then no draft is accepted, and an id beyond the vocabulary is an illegal memory access"


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if not both.is_eagle3:
        return skipped("no EAGLE-3 drafter")
    size = both.drafter.config.draft_vocab_size or both.drafter.config.vocab_size
    ends = [t.text or str(t.id) for t in both.drafter.outside if t.ends]
    without = f"; without {listing(ends)}, so the end of an answer is never drafted" if ends else ""
    return found(
        [*_faults(both), *_needless(facts, both), *_outside(both)],
        passed(f"{size} of {both.drafter.config.vocab_size} target ids{without}"),
    )


def _outside(both: Pair) -> Iterator[Finding]:
    """Tags that the target writes itself. Each costs the rest of a round wherever it occurs, no more."""
    tags = [t.text for t in both.drafter.outside if not t.ends]
    if tags:
        yield CHECK.finding(
            f"The draft vocabulary lacks {plural(len(tags), 'token')} that the target writes by its template: {listing(tags)}",
            [seen("checkpoint", f"t2d is false for them: {listing(tags, 8)}")],
            ("build the map again from answers with reasoning and tool calls in them; a dip right after such a tag is no fault",),
            culprits=(Culprit(node=f"file:{both.drafter.path}", path=both.drafter.path),),
            severity="info",
        )


def _faults(both: Pair) -> Iterator[Finding]:
    config, target = both.drafter.config, both.target
    if target is not None and target.vocab_size and config.vocab_size and target.vocab_size != config.vocab_size:
        yield _make(
            both,
            f"The drafter is for a vocabulary of {config.vocab_size}, the target has {target.vocab_size}",
            seen("config-file", f"vocab_size {config.vocab_size} in the drafter, {target.vocab_size} in the target")[0],
            "use the drafter made for this target",
        )
    small = config.draft_vocab_size is not None and config.draft_vocab_size != config.vocab_size
    if small and both.ending("d2t") is None:
        yield _make(
            both,
            f"The drafter has a vocabulary of its own ({config.draft_vocab_size}) and no map d2t to the target's",
            seen("checkpoint", "no tensor d2t")[0],
            "export it again with d2t: the offset from each draft id to its target id",
        )
    head = both.tensor("lm_head.weight")
    if config.draft_vocab_size is not None and head is not None and head.shape[0] != config.draft_vocab_size:
        yield _make(
            both,
            f"lm_head has {head.shape[0]} rows, draft_vocab_size is {config.draft_vocab_size}",
            seen("checkpoint", f"lm_head.weight has shape {list(head.shape)}")[0],
            "set draft_vocab_size to the rows of lm_head",
        )
    yield from _form(both)
    yield from _map_faults(both)


def _needless(facts: Facts, both: Pair) -> Iterator[Finding]:
    """A map in a drafter that has all of the target's ids.

    VLLM's classes have a place for one only where the two vocabularies differ in size, and their loader refuses a weight that has
    no place (model_executor/models/llama_eagle3.py, 0.31 and 0.32). SGLang applies it and changes nothing.
    """
    config = both.drafter.config
    whole = both.target.vocab_size if both.target is not None and both.target.vocab_size else config.vocab_size
    if "vllm" not in engines(facts) or both.ending("d2t") is None or config.draft_vocab_size not in (None, whole):
        return
    package = facts.environment.distribution("vllm") if facts.environment is not None else None
    if package is not None and version(package.version) < _REFUSED_SINCE:
        return
    yield _make(
        both,
        "The drafter has all of the target's ids and a map d2t all the same: vLLM does not load it",
        seen("checkpoint", f"d2t for a draft vocabulary of {whole}, which is the target's")[0],
        "take d2t and t2d out of the file: no id has to be mapped",
    )


def _form(both: Pair) -> Iterator[Finding]:
    """Maps of another type or length than the loaders take."""
    d2t, t2d = both.ending("d2t"), both.ending("t2d")
    size = both.drafter.config.draft_vocab_size
    if d2t is not None and (d2t.dtype not in ("I64", "I32") or len(d2t.shape) != 1):
        yield _make(
            both,
            f"d2t is {d2t.dtype} of shape {list(d2t.shape)}; it should be a list of whole numbers",
            seen("checkpoint", f"d2t: {d2t.dtype} {list(d2t.shape)}")[0],
            "save it as int64, one offset a draft id",
        )
    elif d2t is not None and size is not None and d2t.shape[0] != size:
        yield _make(
            both,
            f"d2t has {d2t.shape[0]} entries, draft_vocab_size is {size}",
            seen("checkpoint", f"d2t has shape {list(d2t.shape)}")[0],
            "take config.json and weights from the same export",
        )
    if t2d is not None and both.drafter.config.vocab_size is not None and t2d.shape[:1] != (both.drafter.config.vocab_size,):
        yield _make(
            both,
            f"t2d has {t2d.shape[0] if t2d.shape else 'no'} entries, the vocabulary {both.drafter.config.vocab_size}",
            seen("checkpoint", f"t2d has shape {list(t2d.shape)}")[0],
            "the map was made for another tokenizer: build it again for this target",
        )


def _map_faults(both: Pair) -> Iterator[Finding]:
    found_map = both.drafter.vocab_map
    if found_map is None:
        return
    if found_map.looks_absolute:
        title, step = (
            "d2t holds target ids; both engines read it as offsets",
            "subtract: d2t[i] = target_id[i] - i, and save it again",
        )
    elif found_map.out_of_range:
        title, step = f"{found_map.out_of_range} entries of d2t lead outside the target's vocabulary", "export the map again"
    elif found_map.t2d_disagreements:
        title, step = f"d2t and t2d disagree in {found_map.t2d_disagreements} places", "export both from one list of ids"
    else:
        return
    claim = (
        f"read as offsets: {found_map.out_of_range} of {found_map.d2t_entries} leave the vocabulary, "
        f"{found_map.not_increasing} are out of order, "
        f"{'no t2d' if found_map.t2d_disagreements is None else f'{found_map.t2d_disagreements} disagree with t2d'}"
    )
    yield _make(both, title, Evidence(source="checkpoint", claim=claim), step)


def _make(both: Pair, title: str, evidence: Evidence, step: str) -> Finding:
    return CHECK.finding(
        title, [(evidence,)], (step, _SYMPTOM), culprits=(Culprit(node=f"file:{both.drafter.path}", path=both.drafter.path),)
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD603",
        name="drafter-vocab-map-wrong",
        severity="error",
        category="drafter",
        asks="do the drafter's ids lead to the right ids of the target?",
    ),
    evaluate=evaluate,
)
