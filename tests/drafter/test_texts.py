"""Files of texts, and a server's answers that become them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudiag.drafter import answers, prompts, server, texts
from gpudiag.drafter.request import Ask
from gpudiag.errors import NotInspectableError, UsageError
from gpudiag.model.replay import Text
from tests.drafter.replayed import VLLM_MODELS, Script, serving

GOOD = {"schema": "gpudiag.texts/1", "ids": [1, 2, 3], "prompt": 1, "rounds": [0, 1], "histogram": [1, 1]}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    kept = (Text(ids=(1, 2, 3), prompt=2, rounds=(1,), histogram=(0, 1), domain="code"), Text(ids=(4, 5), prompt=1))
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(texts.lines(kept)))
    assert texts.read(path) == kept


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        json.dumps(GOOD | {"ids": "text"}),
        json.dumps(GOOD | {"ids": [-1, 2, 3]}),
        json.dumps(GOOD | {"ids": [1 << 40]}),
        json.dumps(GOOD | {"prompt": 0}),
        json.dumps(GOOD | {"prompt": 9}),
        json.dumps(GOOD | {"rounds": [-3]}),
        json.dumps(GOOD | {"rounds": [10**12]}),
        json.dumps(GOOD | {"histogram": [0] * 100}),
        json.dumps(GOOD | {"schema": "other/2"}),
        "[" * 100_000,
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + line + "\n")
    with pytest.raises(UsageError, match=r"texts\.jsonl:2: "):
        texts.read(path)


@pytest.mark.parametrize("body", ["", "\n\n"])
def test_a_file_without_a_text(tmp_path: Path, body: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(body)
    with pytest.raises(UsageError, match="no text"):
        texts.read(path)


def vllm(completion: dict[str, object], tokens: object = (5, 6)) -> Script:
    """The bodies that vLLM 0.32.0 gives, cut to what is read."""
    return Script(
        gets={"/v1/models": VLLM_MODELS, "/version": b'{"version":"0.32.0"}'},
        posts={"/tokenize": json.dumps({"tokens": tokens}).encode(), "/v1/completions": json.dumps(completion).encode()},
        metrics=(b'vllm:spec_decode_num_drafts_total{engine="0"} 0.0\n',),
    )


def completion(**counts: object) -> dict[str, object]:
    return {
        "choices": [{"text": "", "finish_reason": "length", "token_ids": [7, 8, 9, 10]}],
        "metrics": {"speculative_decoding": {"acceptance_histogram": [1, 1, 0, 0], **counts}},
    }


def asked(script: Script, *, raw: bool = True) -> tuple[Text, ...]:
    info = server.inspect(script.url, model=None, headers={})
    how = Ask(max_tokens=4, endpoint="text" if raw else "chat")
    chosen = prompts.built_in()[:2]
    return answers.answers(info, chosen, how, concurrency=1, headers={}, done=lambda text, why: None)  # noqa: ARG005


def test_an_answer_becomes_a_text_with_its_rounds() -> None:
    with serving(vllm(completion(per_step_accepted=[0, 1]))) as script:
        found = asked(script)
        sent = [json.loads(body) for path, body in script.sent if path == "/v1/completions"]
    assert (
        found
        == (Text(ids=(5, 6, 7, 8, 9, 10), prompt=2, rounds=(0, 1), histogram=(1, 1, 0, 0), domain="chat", finish="length"),) * 2
    )
    assert sent[0]["prompt"] == [5, 6]
    assert (sent[0]["return_token_ids"], sent[0]["max_tokens"]) == (True, 4)


def test_rounds_that_contradict_the_histogram_are_not_believed() -> None:
    with serving(vllm(completion(per_step_accepted=[0, 1, 1]))) as script:
        assert [t.rounds for t in asked(script)] == [None, None]


def test_a_server_without_a_chat_template_gets_plain_prompts() -> None:
    with serving(vllm(completion())) as script:
        script.refuse = {}
        found = asked(script, raw=False)
        messages = [json.loads(body) for path, body in script.sent if path == "/tokenize"]
    assert len(found) == 2
    assert all("messages" in one for one in messages)
    with serving(vllm(completion())) as script:
        script.refuse = {"/tokenize": (400, b'{"error":{"message":"no chat template is defined"}}')}
        with pytest.raises(NotInspectableError, match="chat template"):
            asked(script, raw=False)
        kinds = ["messages" in json.loads(body) for path, body in script.sent if path == "/tokenize"]
    assert kinds[0]
    assert not any(kinds[1:]), "after the first refusal prompts go as they are"


@pytest.mark.parametrize(
    "body",
    [
        {"choices": []},
        {"choices": [{"token_ids": ["x"]}]},
        {"choices": "no"},
        {},
        {"choices": [{"text": "an old vLLM gives no ids"}]},
    ],
)
def test_an_answer_without_ids_is_said(body: dict[str, object]) -> None:
    with serving(vllm(body)) as script, pytest.raises(NotInspectableError, match="no token ids"):
        asked(script)


def test_what_the_server_says_of_an_error_is_not_shown() -> None:
    with serving(vllm(completion())) as script:
        script.refuse = {"/v1/completions": (500, b'{"error":{"message":"bad prompt: my secret"}}')}
        with pytest.raises(NotInspectableError) as error:
            asked(script)
    assert "secret" not in error.value.message
    assert "status 500" in error.value.message
