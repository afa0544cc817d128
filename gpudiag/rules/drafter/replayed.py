"""What a replay of a drafter on the server's own texts shows: the integration, the drafter, or neither.

The replay says how many drafts a drafter has accepted that is served as it was trained. A server that has fewer accepted serves
it otherwise, and the way of serving that reproduces its counts is the cause. A server that has as many accepted serves it right,
and what is low then is the drafter on these texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gpudiag.model.finding import Culprit, Evidence, Finding, Severity
from gpudiag.model.replay import AS_TRAINED, Candidate, DraftCounts, Replay, Section
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.drafter import long_context

RIVAL_TIMES: Final = 20.0
"""A way of serving that is less than so many times less likely than the best cannot be told from it."""
_CLEAR_TIMES: Final = 1000.0
"""The same by counts, for a way that can be reproduced exactly."""
_DRAWN_TIMES: Final = 1e9
"""The same where the rival is another tensor, which no draw matches: in 500 replays of planted faults, with 4 to 40 answers of 30
to 128 tokens, a way that was best by less was the right one in seven of 75, and by more in 19 of 19."""
_DEAD_TIMES: Final = 10_000.0
"""The same where hardly a draft is accepted: then little of what is seen depends on which fault it is."""
_FEW_TEXTS: Final = 32
_DEAD: Final = 0.005
_EXACT: Final = 0.9
"""Share of the rounds that a right prediction gets right; bfloat16 and other kernels flip the rest."""
_PLAIN: Final = 0.45
"""DraftCounts of every draft below which a drafter is called low: between the published under-trained and healthy ones."""
_DEEPER: Final = 60

_STEPS: Final[dict[str, str]] = {
    "layers": "`gpudiag drafter check DRAFT --target DIR` shows which layers each engine feeds; correct the ids in config.json",
    "vocabulary": "`gpudiag drafter check DRAFT --target DIR` reads d2t and t2d; export d2t as offsets from draft to target id",
    "weights": "`gpudiag drafter check DRAFT --target DIR` compares every name and shape with the class that loads them",
    "feedback": "set norm_output in config.json as the trainer feeds back, which is not what SpecForge calls norm_output",
    "embedding": "compare embed_tokens in the served file with the target's; take it out if the drafter learnt with the target's",
    "shift": "look at where the engine pairs the target's states with tokens: state of token i goes with token i + 1",
    "norm": "compare the engine's drafter class with the trainer's: which norms it applies, and from where it takes the residual",
    "residual": "set norm_before_residual in config.json as it was trained; SGLang does not know the flag",
}


def evaluate(replay: Replay) -> Iterator[Finding]:
    """The findings of one replay, the cause first. None means: served as trained, and it accepts well."""
    trained = next(c for c in replay.candidates if c.name == AS_TRAINED)
    if replay.measured is not None and not agrees(replay, trained):
        yield _integration(replay)
        return
    long_texts = long_context.evaluate(replay)
    if long_texts is not None:
        yield long_texts
    elif low(replay.replayed, replay.steps):
        better = _better(replay)
        yield _contradicted(replay, better) if better is not None else _weak_drafter(replay)


def agrees(replay: Replay, trained: Candidate) -> bool:
    """Whether the server accepts what a drafter that is served as trained has accepted."""
    if replay.measured is None:
        return False
    if trained.times_less_likely is not None and trained.times_less_likely < RIVAL_TIMES:
        return _fits(replay, trained)
    return trained.agrees is not None and trained.agrees >= 1 - (1 - _EXACT) / 4 and _fits(replay, trained)


def low(found: DraftCounts, steps: int) -> bool:
    """Whether this is less than a chain accepts whose every draft is right with the probability of a plain drafter."""
    return found.length < sum(_PLAIN**i for i in range(steps + 1))


def _fits(replay: Replay, candidate: Candidate) -> bool:
    """Whether a candidate reproduces what was measured, not only better than the others."""
    if candidate.agrees is not None and not candidate.drawn:
        return candidate.agrees >= _EXACT
    found = replay.measured
    if found is None:
        return False
    # What another tensor of the same spread would do is known roughly.
    rough = max(0.1, 0.5 * (found.length - 1)) if candidate.drawn else max(0.03, 0.1 * (found.length - 1))
    spread = max(rough, 3 * found.error, 3 * candidate.replayed.error)
    return abs(candidate.replayed.length - found.length) <= spread


def _integration(replay: Replay) -> Finding:
    best = replay.candidates[0]
    measured = replay.measured
    assert measured is not None  # noqa: S101  the caller has looked
    differs = Evidence(
        source="draft-fates" if replay.measured_from == "rounds" else "draft-counts",
        claim=f"the server accepts {numbers(measured)}, the drafter as trained {numbers(replay.replayed)}, on the same texts",
    )
    if len(replay.candidates) == 1:
        return _untried(replay, differs)
    if best.kind == "as-trained" or not _fits(replay, best):
        return _unexplained(replay, differs)
    dead = measured.survival[0] < _DEAD
    rivals = [c for c in replay.candidates if c.kind != best.kind and (c.times_less_likely or 0) < _limit(best, c, dead=dead)]
    # Where no draft is accepted the integration is broken for certain, and the likeliest way is the one to look at first.
    if not dead and any(_BY_KIND.get(c.kind) is not _BY_KIND[best.kind] for c in rivals):
        return _undecided(replay, differs, [best, *rivals])
    others = [c for c in replay.candidates if c.kind != best.kind]
    times = others[0].times_less_likely if others else None
    rule = _BY_KIND[best.kind]
    explains = Evidence(source=_strength(best, times), claim=_explains(best, times))
    title = f"The drafter is good and served wrong: {best.says}"
    if rivals:
        title = f"The drafter is good and served wrong; not to be told apart: {best.says}, or {rivals[0].says}"
    return finding(
        rule.code,
        rule.name,
        rule.severity,
        title=title,
        links=[[differs], [explains]],
        next_steps=[_STEPS[kind] for kind in dict.fromkeys((best.kind, *(r.kind for r in rivals)))],
        culprits=[Culprit(node=f"file:{replay.draft}", path=replay.draft)],
    )


def _strength(best: Candidate, times: float | None) -> str:
    """How firm a name is: fates of single drafts reproduced, counts reproduced, or only something alike."""
    apart = times is None or times >= _CLEAR_TIMES
    if best.agrees is not None and best.agrees >= _EXACT and apart and not best.drawn:
        return "draft-fates"
    return "draft-counts" if apart and not best.drawn else "draft-resemblance"


def _explains(best: Candidate, times: float | None) -> str:
    exact = f", and {100 * best.agrees:.1f} % of its rounds exactly" if best.agrees is not None and not best.drawn else ""
    apart = "" if times is None else f"; the next cause is {'as likely' if times < 1.5 else _times(times) + ' less likely'}"
    return f"served so, it would have {numbers(best.replayed)} accepted{exact}{apart}"


def _times(times: float) -> str:
    return "more than a million times" if times > 1e6 else f"{times:,.0f} times"


def _untried(replay: Replay, differs: Evidence) -> Finding:
    return finding(
        INCONCLUSIVE.code,
        INCONCLUSIVE.name,
        INCONCLUSIVE.severity,
        title="The server accepts other drafts than this drafter makes: it is served otherwise than it was trained",
        links=[[differs]],
        next_steps=["the same without --no-faults: the known ways to serve a drafter wrongly are then replayed, too"],
        culprits=[Culprit(node=f"file:{replay.draft}", path=replay.draft)],
    )


def _limit(best: Candidate, rival: Candidate, *, dead: bool) -> float:
    """How many times less likely than the best a rival has to be that it is none."""
    if dead:
        return _DEAD_TIMES
    if best.drawn or best.agrees is not None:
        return RIVAL_TIMES
    return _DRAWN_TIMES if rival.drawn else _CLEAR_TIMES


def _undecided(replay: Replay, differs: Evidence, alike: Sequence[Candidate]) -> Finding:
    first: dict[str, Candidate] = {}
    for candidate in alike:
        first.setdefault(candidate.kind, candidate)
    likeliest = list(first.values())[:3]
    sound = any(c.kind == "as-trained" for c in likeliest)
    what = "Not to be told apart" if sound else "The drafter is good and served wrong; not to be told apart"
    more = ["the same with more prompts: `-n 64`; every answer tells them further apart"] if replay.texts < _FEW_TEXTS else []
    fits = [
        Evidence(source="draft-resemblance", claim=f"{c.says}: {numbers(c.replayed)}, {_odds(c, alike[0])}") for c in likeliest
    ]
    return finding(
        INCONCLUSIVE.code,
        INCONCLUSIVE.name,
        INCONCLUSIVE.severity,
        title=f"{what}: {', or '.join(c.says for c in likeliest)}",
        links=[[differs], fits],
        next_steps=[*more, *(_STEPS[c.kind] for c in likeliest if c.kind in _STEPS)],
        culprits=[Culprit(node=f"file:{replay.draft}", path=replay.draft)],
    )


def _odds(candidate: Candidate, best: Candidate) -> str:
    return "the likeliest" if candidate is best else f"{_times(candidate.times_less_likely or 1.0)} less likely"


def _unexplained(replay: Replay, differs: Evidence) -> Finding:
    best = replay.candidates[0]
    steps = [
        "`gpudiag drafter check DRAFT --target DIR` for what the files say",
        "compare target and revision: a drafter for another version of the model behaves so, and so does a quantised target",
    ]
    if replay.measured_from != "rounds":
        steps.insert(
            0, "serve with --per-request-spec-decode-metrics detailed (vLLM): every round then counts, not only their sum"
        )
    return finding(
        INCONCLUSIVE.code,
        INCONCLUSIVE.name,
        INCONCLUSIVE.severity,
        title="The server accepts other drafts than this drafter makes, and no known fault explains it",
        links=[
            [differs],
            [Evidence(source="absence", claim=f"the nearest of {len(replay.candidates)}: {best.says}, {numbers(best.replayed)}")],
        ],
        next_steps=steps,
        culprits=[Culprit(node=f"file:{replay.draft}", path=replay.draft)],
    )


def _better(replay: Replay) -> Candidate | None:
    """The change to the drafter's files with which it would accept clearly more: then they do not say what it learnt."""
    base, high = replay.replayed.length, replay.high
    best = max((c for c in replay.candidates if not c.drawn), key=lambda c: c.replayed.length)
    gain = best.replayed.length - base
    return best if gain > max(0.15, 0.3 * (base - 1)) and best.replayed.length > high else None


def _contradicted(replay: Replay, better: Candidate) -> Finding:
    rule = _BY_KIND[better.kind]
    claim = f"as its files say it accepts {numbers(replay.replayed)}; {numbers(better.replayed)} if {better.says}"
    return finding(
        rule.code,
        rule.name,
        rule.severity,
        title=f"The drafter's files do not say what it learnt: it does well if {better.says}",
        links=[[Evidence(source="draft-fates", claim=claim)]],
        next_steps=[_STEPS[better.kind]],
        culprits=[Culprit(node=f"file:{replay.draft}", path=replay.draft)],
    )


def _weak_drafter(replay: Replay) -> Finding:
    served = "the server serves it right" if replay.measured is not None else "nothing was measured on a server"
    claims = [Evidence(source="draft-fates", claim=f"replayed without a server it accepts {numbers(replay.replayed)}; {served}")]
    if replay.covered < 0.9:
        claims.append(
            Evidence(source="draft-counts", claim=f"{100 * replay.covered:.0f} % of the answers' tokens are in its vocabulary")
        )
    worst = _worst(replay.sections)
    notes = [Evidence(source="draft-counts", claim=worst)] if worst else []
    return finding(
        UNDERTRAINED.code,
        UNDERTRAINED.name,
        UNDERTRAINED.severity,
        title=f"The drafter is the limit: {replay.replayed.length:.2f} tokens a round on these texts, however it is served",
        links=[claims],
        notes=notes,
        next_steps=[
            "replay the prompts of its model card: high there, and these texts are off its domain; else it is under-trained",
            "`gpudiag drafter train URL --from DRAFT` shows in minutes whether a fine-tune on these texts lifts it",
        ],
        culprits=[Culprit(node=f"file:{replay.draft}", path=replay.draft)],
    )


def _worst(sections: Sequence[Section]) -> str | None:
    """The part that differs most from its siblings, in words."""
    found = []
    for by in dict.fromkeys(s.by for s in sections):
        parts = [s for s in sections if s.by == by and s.acceptance.rounds >= _DEEPER]
        if len(parts) > 1:
            lowest, highest = (pick(parts, key=lambda s: s.acceptance.length) for pick in (min, max))
            found.append((highest.acceptance.length - lowest.acceptance.length, by, lowest, highest))
    if not found:
        return None
    _, by, lowest, highest = max(found, key=lambda entry: entry[0])
    return f"by {by}: {lowest.acceptance.length:.2f} in {lowest.name}, {highest.acceptance.length:.2f} in {highest.name}"


def numbers(found: DraftCounts) -> str:
    """DraftCounts length and survival, short."""
    return f"{found.length:.2f} ({' '.join(f'{s:.3f}' for s in found.survival)})"


def _only(code: str) -> Callable[[Replay], Iterator[Finding]]:
    return lambda replay: (f for f in evaluate(replay) if f.code == code)


def _rule(code: str, name: str, severity: Severity) -> Rule[Replay]:
    return Rule(code=code, name=name, severity=severity, evaluate=_only(code))


LAYERS: Final = _rule("GPD602", "drafter-aux-layers-mismatch", "error")
VOCABULARY: Final = _rule("GPD603", "drafter-vocab-map-wrong", "error")
WEIGHTS: Final = _rule("GPD605", "drafter-weights-dropped", "error")
UNDERTRAINED: Final = _rule("GPD606", "drafter-undertrained-or-off-domain", "warning")
FEEDBACK: Final = _rule("GPD608", "drafter-feedback-mismatch", "error")
CONTEXT: Final = _rule(long_context.CODE, long_context.NAME, "warning")
EMBEDDING: Final = _rule("GPD610", "drafter-embedding-mismatch", "error")
INCONCLUSIVE: Final = _rule("GPD612", "speculation-reading-inconclusive", "info")
MISALIGNED: Final = _rule("GPD614", "drafter-inputs-misaligned", "error")

_BY_KIND: Final[dict[str, Rule[Replay]]] = {
    "layers": LAYERS,
    "vocabulary": VOCABULARY,
    "weights": WEIGHTS,
    "feedback": FEEDBACK,
    "embedding": EMBEDDING,
    "shift": MISALIGNED,
    "norm": FEEDBACK,
    "residual": FEEDBACK,
}
