"""From answers and counters to acceptance: bodies that real servers gave, and bodies that no server should give."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gpudiag.drafter import acceptance, run
from gpudiag.drafter.measure import measurement
from gpudiag.drafter.prompts import Message, Prompt
from gpudiag.drafter.request import Ask, rounds_in, with_counts
from gpudiag.drafter.run import Plan
from gpudiag.drafter.server import inspect
from gpudiag.errors import NoTargetError, NotInspectableError
from gpudiag.model.speculation import RequestReading, ServerRun
from tests.drafter.replayed import Script, chain_vllm, plain_sglang, recorded, serving, sglang

PROMPTS = tuple(Prompt(number=n, messages=(Message(role="user", content="def hello"),), domain="code") for n in range(1, 9))


def put(
    script: Script, *, requests: int = 1, concurrency: int = 1, endpoint: Any = "chat", deadline_s: float = 20.0
) -> ServerRun:
    how = Ask(max_tokens=32, temperature=0.0, endpoint=endpoint, deadline_s=deadline_s)
    plan = Plan(prompts=PROMPTS[:requests], name="test", how=how, concurrency=concurrency)
    with serving(script):
        return run.put(inspect(script.url, model=None, headers={}), plan, lambda _: None)


@pytest.mark.parametrize("endpoint", ["chat", "text"])
@pytest.mark.parametrize("per_request", [True, False])
def test_answers_and_counters_of_a_chain_agree_exactly(endpoint: str, *, per_request: bool) -> None:
    served = put(chain_vllm(per_request=per_request), endpoint=endpoint)
    (reading,) = served.requests
    assert (reading.problem, reading.tokens, reading.decode_tokens, reading.prompt_tokens is not None) == (None, 32, 31, True)
    assert reading.counted_by == ("response" if per_request else "counters")
    assert (reading.rounds, reading.drafted, reading.accepted, reading.accepted_at) == (16, 48, 16, (16, 0, 0))
    # The pieces of the answer are the rounds, the last one cut by the limit of tokens.
    assert reading.steps == (1,) * 16
    assert (served.tokens_counted, served.tokens_of_others, served.steps, served.version) == (32, 0, 3, "0.32.0")
    m = measurement(served)
    assert m.acceptance is not None
    assert (m.acceptance.length.value, m.acceptance.rate) == (2.0, 1 / 3)
    (whole,) = m.others
    assert (whole.source, whole.length.value, whole.rate, whole.rounds) == ("counters", 2.0, 1 / 3, 16)


def test_traffic_of_others_is_noticed_and_not_counted_as_ours() -> None:
    second = recorded("vllm-0.32.0-chain-metrics-2.txt").replace(
        b'generation_tokens_total{engine="0",model_name="tiny"} 64.0',
        b'generation_tokens_total{engine="0",model_name="tiny"} 99.0',
    )
    bodies = (recorded("vllm-0.32.0-chain-metrics-0.txt"), recorded("vllm-0.32.0-chain-metrics-1.txt"), second)
    served = put(chain_vllm(per_request=False, metrics=bodies))
    assert served.tokens_of_others == 35
    assert [r.counted_by for r in served.requests] == [None]
    told = put(chain_vllm(per_request=True, metrics=bodies))
    assert told.tokens_of_others == 35
    assert [r.counted_by for r in told.requests] == ["response"]


def test_several_at_a_time_are_counted_by_their_answers() -> None:
    served = put(chain_vllm(per_request=True), requests=6, concurrency=3)
    found = acceptance.by_requests(served)
    assert found is not None
    assert (found.rounds, found.length.value, found.length.low, found.length.high) == (96, 2.0, 2.0, 2.0)
    assert [r.number for r in served.requests] == [1, 2, 3, 4, 5, 6]


def test_a_server_without_a_chat_template_gets_text() -> None:
    script = chain_vllm(per_request=True)
    script.refuse = {"/v1/chat/completions": (400, b'{"error":{"message":"... default chat template is no longer allowed"}}')}
    served = put(script)
    assert served.load.endpoint == "text"
    assert [path for path, _ in script.sent][-1] == "/v1/completions"


def test_what_is_sent_is_bounded_greedy_and_streamed() -> None:
    script = chain_vllm(per_request=True)
    put(script)
    _, body = script.sent[-1]
    sent = json.loads(body)
    assert (sent["max_tokens"], sent["temperature"], sent["stream"], sent["model"]) == (32, 0.0, True, "tiny")


def test_an_error_does_not_quote_the_prompt() -> None:
    script = chain_vllm(per_request=True)
    script.refuse = {"/v1/chat/completions": (400, b'{"error":{"message":"bad input: def hello"}}')}
    with pytest.raises(NotInspectableError) as raised:
        put(script)
    assert "status 400" in raised.value.message
    assert "def hello" not in raised.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"data: [DONE]\n\n",
        b"data: no json\n\n",
        b'data: {"error": {"message": "engine died"}}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"choices": 7, "usage": [], "metrics": {"speculative_decoding": 3}}\n\n',
        b'data: {"choices":[{"finish_reason":"length"}],"usage":{"completion_tokens":-5,"prompt_tokens":true}}\n\n',
    ],
)
def test_an_answer_that_tells_nothing_is_a_problem_in_one_line(body: bytes) -> None:
    script = chain_vllm(per_request=True)
    script.posts = dict.fromkeys(script.posts, body)
    with pytest.raises(NotInspectableError) as raised:
        put(script)
    assert "\n" not in raised.value.message


def test_an_answer_that_breaks_off_is_not_counted() -> None:
    script = chain_vllm(per_request=True)
    script.posts = dict.fromkeys(script.posts, recorded("vllm-0.32.0-chain-chat.sse")[:2000])
    with pytest.raises(NotInspectableError, match="broke off"):
        put(script)


def test_an_answer_that_never_ends_is_given_up() -> None:
    script = chain_vllm(per_request=True)
    script.posts = {path: body.replace(b"data: [DONE]", b"") for path, body in script.posts.items()}
    script.hold_from = 0
    with pytest.raises(NotInspectableError, match=r"within 0\.5 s"):
        put(script, deadline_s=0.5)


def test_nobody_there_and_nobody_known() -> None:
    with pytest.raises(NoTargetError):
        inspect("http://127.0.0.1:9", model=None, headers={})
    other = Script(gets={"/v1/models": b'{"data":[{"id":"x","owned_by":"someone"}]}'}, posts={})
    with serving(other) as script, pytest.raises(NotInspectableError, match="neither SGLang nor vLLM"):
        inspect(script.url, model=None, headers={})


SGLANG_DETAILS = {
    # Field names and meaning as in sglang 0.5.23, srt/managers/tokenizer_manager.py; a histogram ends at its last entry.
    "spec_accept_rate": 6 / 30,
    "spec_accept_length": 1.7,
    "spec_num_correct_drafts": 6,
    "spec_num_proposed_drafts": 30,
    "spec_verify_ct": 10,
    "spec_correct_drafts_histogram": [6, 2, 2],
}


def test_the_histogram_of_sglang_gives_positions() -> None:
    reading = with_counts(RequestReading(number=1, tokens=17), SGLANG_DETAILS)
    assert (reading.rounds, reading.accepted, reading.drafted, reading.accepted_at) == (10, 6, 30, (4, 2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"spec_correct_drafts_histogram": [6, 2, 1]},
        {"spec_correct_drafts_histogram": [6, 2, "2"]},
        {"spec_correct_drafts_histogram": [6, 2, -2, 4]},
        {"spec_correct_drafts_histogram": [1] * 5000},
        {"spec_correct_drafts_histogram": None},
        {"spec_verify_ct": True},
    ],
)
def test_counts_that_contradict_themselves_are_not_used(wrong: dict[str, Any]) -> None:
    reading = with_counts(RequestReading(number=1), {**SGLANG_DETAILS, **wrong})
    assert (reading.rounds, reading.counted_by) == (None, None)


def test_pieces_are_rounds_only_if_they_fit_the_histogram() -> None:
    assert rounds_in((0, 2, 1, 0), [2, 1, 1]) == (0, 2, 1, 0)
    # The last piece was cut; what the histogram has left is its count.
    assert rounds_in((0, 2, 0), [1, 0, 2]) == (0, 2, 2)
    assert rounds_in((0, 2), [2, 1, 1]) == ()
    assert rounds_in((5, 0, 0, 0), [2, 1, 1]) == ()


def test_length_is_told_apart_by_context() -> None:
    reading = RequestReading(
        number=1, prompt_tokens=100, rounds=4, accepted=6, accepted_at=(3, 3), steps=(2, 25, 2, 0), counted_by="response"
    )
    served = msgspec.structs.replace(put(chain_vllm(per_request=True)), requests=(reading,))
    short, long = acceptance.stretches(served)
    assert (short.since, short.rounds, short.length.value) == (0, 2, 14.5)
    assert (long.since, long.rounds, long.length.value) == (128, 2, 2.0)


STEPS = (0, 2, 1, 0, 0, 1, 2, 0)


def test_sglang_tells_the_rounds_of_a_chat() -> None:
    served = put(sglang(STEPS, details=True, posts=3), requests=2)
    assert (served.engine, served.version, served.steps, served.tree, served.tokens_of_others) == (
        "sglang",
        "0.5.17",
        3,
        False,
        0,
    )
    for reading in served.requests:
        assert (reading.counted_by, reading.rounds, reading.drafted, reading.accepted) == ("response", 8, 24, 6)
        # The histogram ends at two; the third position of a chain of three is there all the same.
        assert (reading.accepted_at, reading.steps) == ((4, 2, 0), STEPS)
    m = measurement(served)
    assert m.acceptance is not None
    (whole,) = m.others
    # The counters know rounds and tokens only, and come to the same length.
    assert (m.acceptance.length.value, whole.length.value, whole.rounds, whole.survival) == (1.75, 1.75, 16, ())


def test_an_sglang_that_does_not_tell_is_counted_without_positions() -> None:
    served = put(sglang(STEPS, details=False, posts=3), requests=2)
    m = measurement(served)
    assert m.acceptance is not None
    assert [r.counted_by for r in served.requests] == ["counters", "counters"]
    assert (m.acceptance.length.value, m.acceptance.rounds, m.acceptance.survival, m.shape) == (1.75, 16, (), None)


def test_a_tree_has_depth_and_nodes() -> None:
    tree = {"speculative_num_steps": 5, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}
    served = put(sglang(STEPS, details=True, posts=2, **tree))
    assert (served.steps, served.tree, served.drafts_per_round) == (5, True, 7)
    m = measurement(served, plain=msgspec.structs.replace(served, steps=0))
    assert m.cost is not None
    # Of a tree only a path can be accepted: a rate of its nodes means nothing, and another number of steps is another tree.
    assert (m.cost.break_even_rate, m.choice) == (None, None)


@pytest.mark.parametrize("endpoint", ["chat", "text"])
def test_an_sglang_without_a_drafter_is_a_plain_run(endpoint: str) -> None:
    served = put(plain_sglang(), endpoint=endpoint)
    (reading,) = served.requests
    assert (served.engine, served.version, served.steps, served.tokens_of_others) == ("sglang", "0.5.23", 0, 0)
    assert (reading.problem, reading.tokens, reading.decode_tokens, reading.rounds, reading.steps) == (None, 32, 31, None, ())
    assert measurement(served).acceptance is None


def test_settings_that_change_what_acceptance_means_are_said() -> None:
    loose = {"speculative_accept_threshold_single": 0.8, "speculative_adaptive": True}
    served = put(sglang(STEPS, details=True, posts=2, **loose))
    assert [note.partition(" ")[0] for note in served.notes] == ["the", "an"]
    assert put(sglang(STEPS, details=True, posts=2)).notes == ()
