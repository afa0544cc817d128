"""What a drafter's replay was given and what it found."""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from gpudiag.model.report import Report

TEXTS_SCHEMA: Final = "gpudiag.texts/1"
TRAIN_SCHEMA: Final = "gpudiag.train/1"


class Text(Struct, frozen=True, kw_only=True):
    """One answer of a server: token ids of prompt and answer, and what its drafts did. One line of a file of texts.

    `rounds` is the number of accepted drafts in each verify round, in order (vLLM, --per-request-spec-decode-metrics detailed);
    `histogram` how many rounds accepted 0, 1, 2 ... drafts (SGLang's spec_correct_drafts_histogram, vLLM's summary).
    """

    ids: tuple[int, ...]
    prompt: int
    """How many of `ids` are the prompt."""
    rounds: tuple[int, ...] | None = None
    histogram: tuple[int, ...] | None = None
    domain: str = ""
    finish: str = ""
    schema: str = TEXTS_SCHEMA

    @property
    def answer(self) -> tuple[int, ...]:
        return self.ids[self.prompt :]


class DraftCounts(Struct, frozen=True, kw_only=True):
    """How many drafts were accepted. `at` counts by position, the first draft of a round first."""

    rounds: int
    at: tuple[int, ...]

    @property
    def length(self) -> float:
        """Tokens a round, the one of the target included."""
        return 1 + sum(self.at) / self.rounds if self.rounds else 1.0

    @property
    def survival(self) -> tuple[float, ...]:
        """Share of the rounds in which the draft at each position was accepted."""
        return tuple(n / self.rounds if self.rounds else 0.0 for n in self.at)

    @property
    def error(self) -> float:
        """Standard error of the length, rounds taken as independent; 1.0 without rounds."""
        if not self.rounds:
            return 1.0
        mean = self.length - 1
        # Sum of squares from survival: E[L^2] = sum (2i - 1) S_i.
        square = sum((2 * i + 1) * s for i, s in enumerate(self.survival))
        return math.sqrt(max(0.0, square - mean * mean) / self.rounds)

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """DraftCounts at each position where all before it were accepted; None where that never happened."""
        reached = (self.rounds, *self.at[:-1])
        return tuple(n / r if r else None for n, r in zip(self.at, reached, strict=True))


AS_TRAINED: Final = "as trained"
"""The candidate that is no fault."""


class Candidate(Struct, frozen=True, kw_only=True):
    """One way in which the drafter may be served, and how well it explains what was measured."""

    name: str
    kind: str
    """The cause that it stands for: as-trained, layers, shift, vocabulary, norm, feedback, embedding, weights, residual."""
    says: str
    replayed: DraftCounts
    log_likelihood: float | None = None
    times_less_likely: float | None = None
    """Than the best, priors included; None where nothing was measured. Never above 1e9."""
    agrees: float | None = None
    """Share of the compared rounds that it predicts exactly; None without a record by round."""
    drawn: bool = False
    """Whether random tensors stand for one that is not known: it can only be alike, not the same."""


class Section(Struct, frozen=True, kw_only=True):
    """Replayed acceptance in one part of the texts."""

    by: str
    """section, position or domain."""
    name: str
    acceptance: DraftCounts
    texts: int
    """Texts that have rounds enough in this part to say something of each."""
    lost: int
    """Of these, the texts in which hardly a draft is accepted there."""


class Context(Struct, frozen=True, kw_only=True):
    """Replayed acceptance far into the texts, with all the text in the drafter's sight and with its last tokens only."""

    window: int
    """How many of the last tokens the drafter attends to in `cut`."""
    since: int
    """Position in the text from which on rounds are counted."""
    texts: int
    """Texts that are so long."""
    whole: DraftCounts
    cut: DraftCounts
    low: float | None
    """95 % interval of the difference of the two lengths, from resampling texts; None for a few texts."""
    high: float | None


class Replay(Struct, frozen=True, kw_only=True):
    """A replay and its comparison with what the server measured."""

    draft: str
    target: str
    texts: int
    tokens: int
    steps: int
    topk: int
    draft_tokens: int
    learnt_layers: tuple[int, ...]
    covered: float
    """Share of the answers' tokens that are in the draft vocabulary: an upper bound of the first draft's acceptance."""
    own_choice: float
    """How often the target, computed here, chooses the token that the server gave: 1.0 for the same weights at temperature 0."""
    replayed: DraftCounts
    low: float
    """Lower end of the 95 % interval of the replayed acceptance length, from resampling texts."""
    high: float
    measured: DraftCounts | None
    measured_from: str
    """rounds, histograms, counters, given, or nothing."""
    candidates: tuple[Candidate, ...]
    """Best first where something was measured."""
    sections: tuple[Section, ...]
    window: int | None = None
    """Tokens that the server has the drafter attend to at most; None: all."""
    contexts: tuple[Context, ...] = ()
    """By window, the shortest first; empty where no text is long enough."""
    dtype: str
    device: str
    took_s: float


class ReplayReport(Report, frozen=True, kw_only=True):
    """A report of schema gpudiag.report/1 with the numbers that it rests on."""

    replay: Replay


class Trained(Struct, frozen=True, kw_only=True):
    """How a training ended. `rate` is tokens learnt a second over all ranks, `took_s` without what came before the first step."""

    steps: int
    tokens: int
    took_s: float
    rate: float
    loss: float
    accuracy: tuple[float, ...]
    """Share of the target's first choices that each unrolled step draws, in the last batch."""
    ranks: int
    covered: float
    parameters: int
    device: str
    drafters: dict[str, str]
    """Directory of the drafter in each dialect."""


class TrainResult(Struct, frozen=True, kw_only=True):
    """What `drafter train --json` prints: the training, and replays of the texts that were kept back from it.

    `before` is None for a drafter that began with random weights, `after` if too few texts were there to keep any back.
    """

    gpudiag: str
    trained: Trained
    before: Replay | None
    after: Replay | None
    schema: str = TRAIN_SCHEMA
