"""What a replay is judged to mean: each cause where it fires, and a twin with one fact changed where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag.drafter.replay_report import report_of
from gpudiag.model.replay import Candidate, DraftCounts, Replay, ReplayReport, Section
from gpudiag.render.replay import text
from gpudiag.rules.drafter.replayed import evaluate

GOOD = DraftCounts(rounds=1000, at=(650, 430, 300))
LOW = DraftCounts(rounds=1000, at=(330, 80, 20))
KINDS = {
    "layers": "GPD602",
    "vocabulary": "GPD603",
    "weights": "GPD605",
    "feedback": "GPD608",
    "norm": "GPD608",
    "residual": "GPD608",
    "embedding": "GPD610",
    "shift": "GPD614",
}


def trained(counts: DraftCounts, *, times: float | None = 1.0, agrees: float | None = 1.0) -> Candidate:
    return Candidate(
        name="as trained",
        kind="as-trained",
        says="served as it was trained",
        replayed=counts,
        log_likelihood=None if times is None else -1.0,
        times_less_likely=times,
        agrees=agrees,
    )


def fault(
    kind: str, counts: DraftCounts, *, times: float | None = 1.0, agrees: float | None = 1.0, drawn: bool = False
) -> Candidate:
    return Candidate(
        name=f"a fault of {kind}", kind=kind, says=f"something about {kind}", replayed=counts, times_less_likely=times,
        agrees=agrees, drawn=drawn,
    )  # fmt: skip


def made(*candidates: Candidate, measured: DraftCounts | None = None, **changes: Any) -> Replay:
    own = next(c.replayed for c in candidates if c.kind == "as-trained")
    replay = Replay(
        draft="/models/draft",
        target="/models/target",
        texts=40,
        tokens=4000,
        steps=3,
        topk=1,
        draft_tokens=4,
        learnt_layers=(2, 4, 5),
        covered=1.0,
        own_choice=1.0,
        replayed=own,
        low=own.length - 0.1,
        high=own.length + 0.1,
        measured=measured,
        measured_from="rounds" if measured else "nothing",
        candidates=candidates,
        sections=(),
        dtype="float32",
        device="cpu",
        took_s=1.0,
    )
    return msgspec.structs.replace(replay, **changes)


def codes(replay: Replay) -> list[str]:
    return [f.code for f in evaluate(replay)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_fault_that_explains_the_server_is_the_verdict(kind: str) -> None:
    (found,) = evaluate(made(fault(kind, LOW), trained(GOOD, times=1e9, agrees=0.5), measured=LOW))
    assert (found.code, found.severity, found.confidence) == (KINDS[kind], "error", "proven")


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_accepts_what_the_drafter_can_is_healthy(kind: str) -> None:
    replay = made(trained(GOOD), fault(kind, LOW, times=1e9, agrees=0.5), measured=GOOD)
    assert codes(replay) == []
    assert report_of(replay, version="1").verdict.status == "healthy"


def test_numerics_are_no_fault() -> None:
    """Two implementations in bfloat16: a twin that reproduces a few rounds more is not the cause."""
    near = fault("weights", GOOD, agrees=0.981)
    assert codes(made(near, trained(GOOD, times=1e4, agrees=0.98), measured=GOOD)) == []
    assert codes(made(fault("weights", LOW), trained(GOOD, times=1e4, agrees=0.9), measured=LOW)) == ["GPD605"]


def test_two_causes_that_look_alike_are_both_named_and_neither_is_the_verdict() -> None:
    rival = fault("weights", LOW, times=4.0)
    (found,) = evaluate(made(fault("vocabulary", LOW), rival, trained(GOOD, times=1e9, agrees=0.5), measured=LOW))
    assert (found.code, found.severity, found.confidence) == ("GPD612", "info", "weak")
    assert "vocabulary" in found.title
    assert "weights" in found.title
    assert not any("-n 64" in step for step in found.next_steps), "40 texts are no few"
    twin = msgspec.structs.replace(rival, times_less_likely=1e5)
    (found,) = evaluate(made(fault("vocabulary", LOW), twin, trained(GOOD, times=1e9, agrees=0.5), measured=LOW))
    assert (found.code, found.confidence, "weights" in found.title) == ("GPD603", "proven", False)


def test_the_likeliest_causes_are_listed_each_once() -> None:
    rivals = [
        fault(kind, LOW, times=times) for kind, times in (("weights", 2.0), ("shift", 3.0), ("norm", 4.0), ("weights", 5.0))
    ]
    (found,) = evaluate(made(fault("vocabulary", LOW), *rivals, trained(GOOD, times=1e9, agrees=0.5), measured=LOW))
    listed = found.title.partition("apart: ")[2].split(", or ")
    assert listed == ["something about vocabulary", "something about weights", "something about shift"]


def test_two_ways_to_the_same_code_are_one_verdict() -> None:
    rival = fault("norm", LOW, times=4.0)
    (found,) = evaluate(made(fault("feedback", LOW), rival, trained(GOOD, times=1e9, agrees=0.5), measured=LOW))
    assert (found.code, "not to be told apart" in found.title) == ("GPD608", True)


@pytest.mark.parametrize(
    ("drawn", "times", "code"), [(False, 500, "GPD612"), (False, 2e3, "GPD602"), (True, 1e6, "GPD612"), (True, 1e9, "GPD602")]
)
def test_counts_of_a_few_answers_leave_more_causes_open(drawn: bool, times: float, code: str) -> None:
    """Another tensor fits as badly as the draw that stands for it: what fits a little better need not be the cause."""
    rival = fault("weights", LOW, times=times, agrees=None, drawn=drawn)
    best, healthy = fault("layers", LOW, agrees=None), trained(GOOD, times=1e9, agrees=None)
    (found,) = evaluate(made(best, rival, healthy, measured=LOW, measured_from="histograms", texts=8))
    assert found.code == code
    assert any("-n 64" in step for step in found.next_steps) == (code == "GPD612")


def test_a_drafter_that_may_be_served_right_is_not_called_served_wrong() -> None:
    best, healthy = fault("weights", LOW, agrees=None), trained(LOW, times=100.0, agrees=None)
    (found,) = evaluate(made(best, healthy, measured=LOW, measured_from="histograms", texts=8))
    assert (found.code, found.title.startswith("Not to be told apart")) == ("GPD612", True)


def test_what_no_known_fault_explains_is_not_proven() -> None:
    best = fault("layers", GOOD, agrees=None)
    (found,) = evaluate(made(best, trained(GOOD, times=1e9, agrees=None), measured=LOW, measured_from="histograms"))
    assert ("no known fault explains it" in found.title, found.confidence) == (True, "weak")


def test_where_hardly_a_draft_is_accepted_more_causes_look_alike() -> None:
    dead = DraftCounts(rounds=1000, at=(0, 0, 0))
    rival = fault("weights", DraftCounts(rounds=1000, at=(4, 0, 0)), times=350.0)
    (found,) = evaluate(made(fault("vocabulary", dead), rival, trained(GOOD, times=1e9, agrees=0.5), measured=dead))
    assert (found.code, found.confidence, "weights" in found.title) == ("GPD603", "weak", True)
    (found,) = evaluate(made(fault("vocabulary", LOW), rival, trained(GOOD, times=1e9, agrees=0.5), measured=LOW))
    assert (found.code, "weights" in found.title) == ("GPD603", False)


def test_a_fault_that_costs_nothing_is_mentioned() -> None:
    replay = made(fault("weights", GOOD), trained(GOOD, times=1e9, agrees=0.98), measured=GOOD)
    verdict = report_of(replay, version="1").verdict
    assert (verdict.status, "2.0 % of the rounds differ" in verdict.next_step) == ("healthy", True)
    twin = made(fault("weights", GOOD), trained(GOOD, times=1e9, agrees=0.998), measured=GOOD)
    assert "differ" not in report_of(twin, version="1").verdict.next_step


def test_what_only_resembles_is_weak() -> None:
    (found,) = evaluate(made(fault("embedding", LOW, drawn=True), trained(GOOD, times=1e9, agrees=0.5), measured=LOW))
    assert found.confidence == "weak"


def test_counts_alone_prove_nothing() -> None:
    best = fault("layers", LOW, agrees=None)
    (found,) = evaluate(made(best, trained(GOOD, times=1e9, agrees=None), measured=LOW, measured_from="counters"))
    assert (found.code, found.confidence) == ("GPD602", "strong")


def test_a_server_that_nothing_explains() -> None:
    best = fault("layers", LOW, agrees=0.7)
    (found,) = evaluate(made(best, trained(GOOD, times=1e9, agrees=0.5), measured=LOW))
    assert (found.code, found.severity) == ("GPD612", "info")
    twin = msgspec.structs.replace(best, agrees=0.97)
    assert codes(made(twin, trained(GOOD, times=1e9, agrees=0.5), measured=LOW)) == ["GPD602"]


def test_without_the_faults_their_absence_is_not_claimed() -> None:
    (found,) = evaluate(made(trained(GOOD, agrees=0.5), measured=LOW))
    assert found.code == "GPD612"
    assert "no known fault" not in found.title
    assert "--no-faults" in found.next_steps[0]


def test_a_low_drafter_that_is_served_right_is_the_limit() -> None:
    assert codes(made(trained(LOW), measured=LOW)) == ["GPD606"]
    assert codes(made(trained(LOW, times=None, agrees=None))) == ["GPD606"], "the replay alone knows that, too"
    assert codes(made(trained(GOOD), measured=GOOD)) == []


def test_files_that_do_not_say_what_the_drafter_learnt() -> None:
    better = fault("layers", GOOD, times=1e9, agrees=0.5)
    (found,) = evaluate(made(trained(LOW), better, measured=LOW))
    assert found.code == "GPD602"
    assert "files do not say" in found.title
    twin = msgspec.structs.replace(better, replayed=DraftCounts(rounds=1000, at=(350, 90, 25)))
    assert codes(made(trained(LOW), twin, measured=LOW)) == ["GPD606"]


def place(name: str, *at: int, texts: int = 6, lost: int = 0) -> Section:
    return Section(by="position", name=name, acceptance=DraftCounts(rounds=200, at=at), texts=texts, lost=lost)


def test_a_drafter_that_loses_long_texts() -> None:
    falling = (place("0-63", 120, 80, 50), place("64-127", 110, 70, 40), place("256-511", 10, 1, 0, lost=6))
    (found,) = evaluate(made(trained(GOOD), measured=GOOD, sections=falling))
    assert (found.code, found.confidence) == ("GPD609", "proven")
    most = (*falling[:2], place("256-511", 20, 4, 1, lost=4))
    (found,) = evaluate(made(trained(GOOD), measured=GOOD, sections=most))
    assert (found.code, found.confidence) == ("GPD609", "strong")
    some = (*falling[:2], place("256-511", 30, 5, 2, lost=3))
    assert codes(made(trained(GOOD), measured=GOOD, sections=some)) == [], (
        "half of the texts are lost: that is no effect of length"
    )
    few = (*falling[:2], place("256-511", 10, 1, 0, texts=2, lost=2))
    assert codes(made(trained(GOOD), measured=GOOD, sections=few)) == []
    even = (*falling[:2], place("256-511", 100, 60, 40))
    assert codes(made(trained(GOOD), measured=GOOD, sections=even)) == []


def recorded(name: str) -> ReplayReport:
    path = Path(__file__).parent / "recorded" / f"sglang-0.5.17-eagle3-{name}-replay.json"
    return msgspec.json.decode(path.read_bytes(), type=ReplayReport)


@pytest.mark.parametrize(
    ("name", "code", "confidence", "says"),
    [
        ("layers", "GPD602", "strong", "one layer late"),
        ("feedback", "GPD608", "strong", "after the final norm"),
        ("vocabulary", "GPD603", "strong", "d2t is not loaded"),
        ("embedding", "GPD610", "weak", "neither its own nor the target's"),
    ],
)
def test_a_real_server_of_a_good_drafter(name: str, code: str, confidence: str, says: str) -> None:
    (found,) = evaluate(recorded(name).replay)
    assert (found.code, found.confidence) == (code, confidence)
    assert says in found.title
    assert "not to be told apart" not in found.title


def test_a_real_server_that_is_right() -> None:
    assert codes(recorded("healthy").replay) == []


def test_a_real_drafter_that_sees_too_much() -> None:
    """12 answers of 700 tokens by a real server; acceptance by position falls and comes back, which says nothing of length."""
    report = recorded("long")
    (found,) = evaluate(report.replay)
    assert (found.code, found.confidence) == ("GPD609", "proven")
    assert "1.45 tokens a round from position 384 on, 1.90 if it saw the last 192" in found.title
    assert any("--speculative-draft-window-size 192" in step for step in found.next_steps)
    assert "seeing the last 192" in text(report_of(report.replay, version="1"))
    (context,) = report.replay.contexts
    unsure = msgspec.structs.replace(context, low=-0.02)
    assert codes(msgspec.structs.replace(report.replay, contexts=(unsure,))) == ["GPD606"]
    few = msgspec.structs.replace(context, low=None, high=None)
    assert codes(msgspec.structs.replace(report.replay, contexts=(few,))) == ["GPD606"]
    little = msgspec.structs.replace(context, cut=context.whole, low=0.01)
    assert codes(msgspec.structs.replace(report.replay, contexts=(little,))) == ["GPD606"]


def test_the_page_is_plain_and_narrow() -> None:
    sections = (place("0-63", 120, 80, 50), Section(by="domain", name="co\x1b[31mde", acceptance=GOOD, texts=6, lost=0))
    replay = made(fault("layers", LOW), trained(GOOD, times=1e9, agrees=0.5), measured=LOW, sections=sections, covered=0.97)
    page = text(report_of(replay, version="1"), plain=True)
    assert page.isascii()
    assert "\x1b" not in page
    assert max(map(len, page.splitlines())) <= 80
    assert "GPD602" in page
    assert "measured, round by round" in page
    assert "\x1b[" in text(report_of(replay, version="1"), color=True)
