"""Whatever a server says, the readers end with a value or a reason, and what they take is consistent in itself."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudiag.collect.http_ask import Event
from gpudiag.collect.metrics import parse_metrics
from gpudiag.drafter import log_lines
from gpudiag.drafter.prompts import Message, Prompt
from gpudiag.drafter.request import Answer, with_counts
from gpudiag.model.speculation import RequestReading

PROMPT = Prompt(number=1, messages=(Message(role="user", content="hi"),))
NAMES = st.sampled_from(
    ["num_requests_running", "spec_decode_num_drafts_total", "spec_decode_num_accepted_tokens_per_pos_total", "generation_tokens"]
)
SERIES = st.builds(lambda name, rest: f"vllm:{name}{rest}", NAMES, st.text(max_size=60))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
KEYS = st.sampled_from(
    [
        *("choices", "usage", "metrics", "speculative_decoding", "sglext", "spec_tokens_details", "meta_info", "error"),
        *("finish_reason", "completion_tokens", "prompt_tokens", "acceptance_histogram", "num_spec_steps", "per_step_accepted"),
        *("spec_verify_ct", "spec_correct_drafts_histogram", "num_draft_tokens"),
    ]
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=20
)

VLLM_LINE = (
    b"SpecDecoding metrics: Mean acceptance length: 1.42, Accepted: 5 tokens, Drafted: 9 tokens, "
    b"Per-position acceptance rate: 0.5"
)
SGLANG_LINE = b"Decode batch, #running-req: 1, accept len: "


@given(st.lists(SERIES | st.text(max_size=80), max_size=12))
def test_metrics(lines: list[str]) -> None:
    metrics = parse_metrics("\n".join(lines), 0.0)
    if metrics is not None:
        assert metrics.running is None or metrics.running >= 0


@pytest.mark.parametrize("labels", [" " * 1_000_000, "a" * 1_000_000, 'a="' * 20_000], ids=["spaces", "word", "quotes"])
def test_a_line_of_labels_without_end_costs_no_time(labels: str) -> None:
    # Each of these takes minutes where every character of it is tried as the beginning of a label.
    metrics = parse_metrics(f"vllm:num_requests_running{{{labels}}} 1\nvllm:num_requests_waiting 2\n", 0.0)
    assert metrics is not None
    assert metrics.waiting == 2


@given(st.lists(DOCUMENTS, max_size=5))
def test_events(documents: list[Any]) -> None:
    answer = Answer()
    for document in documents:
        answer.take(Event(data=json.dumps(document).encode(), at=1.0))
    reading = answer.reading(PROMPT, 0.0, answer.problem)
    assert reading.rounds is None or len(reading.steps) in (0, reading.rounds)


@given(st.dictionaries(KEYS, DOCUMENTS), st.lists(st.integers(0, 5), max_size=6))
def test_counts(counts: dict[str, Any], pieces: list[int]) -> None:
    reading = with_counts(RequestReading(number=1, steps=tuple(pieces)), counts)
    if reading.counted_by is not None:
        assert reading.rounds
        assert reading.accepted == sum(reading.accepted_at)
        assert all(reading.rounds >= n for n in reading.accepted_at)
        assert not reading.steps or sum(reading.steps) == reading.accepted


@given(st.binary(max_size=200))
def test_logs(tail: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        log.write_bytes(VLLM_LINE + tail + b", Avg\n" + SGLANG_LINE + tail + b", accept rate: 0.5\n")
        found = log_lines.read(str(log))
    assert found is None or found.length.value >= 0
