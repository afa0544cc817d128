"""Has a server answer prompts, and keeps the token ids: what a replay reads and a drafter learns from.

Prompts become ids by the server's own tokenizer and chat template (/tokenize, in SGLang 0.5.23 and vLLM 0.32), answers come back
as ids: /v1/completions with return_token_ids (vLLM 0.10.2 and later), /generate (SGLang). No text passes through a tokenizer a
second time, and reasoning is kept as it was said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from gpudiag.collect.http_ask import HttpError, ask
from gpudiag.drafter.prompts import Prompt
from gpudiag.drafter.request import Ask
from gpudiag.drafter.server import ServerInfo
from gpudiag.drafter.texts import problem
from gpudiag.errors import NotInspectableError
from gpudiag.model.decoding import decode_json
from gpudiag.model.replay import Text

_MOST_BYTES: Final = 64 << 20
_MOST_STEPS: Final = 64
_PATIENCE: Final = 3
"""Requests that may fail from the start before the rest is spared."""


class _NoAnswerError(Exception):
    """One request gave nothing. The text is for the user."""


def answers(
    info: ServerInfo,
    prompts: Sequence[Prompt],
    how: Ask,
    *,
    concurrency: int,
    headers: Mapping[str, str],
    done: Callable[[Text | None, str | None], None],
) -> tuple[Text, ...]:
    """The answers, in the order of the prompts; one that fails is left out, and `done` is told why.

    Raises NotInspectableError if none of the first prompts is answered.
    """
    first = _template(info, prompts[0], how, headers)
    made: list[Text] = []
    failures: list[str] = []

    def one(prompt: Prompt) -> Text | str:
        try:
            return _answer(info, prompt, first, headers)
        except _NoAnswerError as error:
            return str(error)

    with ThreadPoolExecutor(concurrency, thread_name_prefix="answers") as pool:
        for result in pool.map(one, prompts):
            if isinstance(result, Text):
                made.append(result)
                done(result, None)
                continue
            failures.append(result)
            done(None, result)
            if not made and len(failures) >= _PATIENCE:
                pool.shutdown(cancel_futures=True)
                break
    if not made:
        why = failures[0] if failures else "no prompt"
        raise NotInspectableError(f"{info.url} answered no prompt: {why}", help="gpudiag attach shows what the server is doing")
    return tuple(made)


def _template(info: ServerInfo, prompt: Prompt, how: Ask, headers: Mapping[str, str]) -> Ask:
    """The same as text if the server has no chat template."""
    if how.endpoint == "text":
        return how
    try:
        _ids(info, prompt, how, headers)
    except _NoAnswerError as error:
        if "template" not in str(error).lower():
            return how
        return msgspec.structs.replace(how, endpoint="text")
    return how


def _ids(info: ServerInfo, prompt: Prompt, how: Ask, headers: Mapping[str, str]) -> list[int]:
    document: dict[str, Any] = {"model": info.model}
    if how.endpoint == "text":
        document["prompt"] = prompt.text
    else:
        document["messages"] = msgspec.to_builtins(prompt.messages)
        if info.engine == "vllm":
            document["add_generation_prompt"] = True
    found = _post(info, "/tokenize", document, how, headers).get("tokens")
    ids = _numbers(found)
    if not ids:
        raise _NoAnswerError("its /tokenize gives no token ids")
    return ids


def _answer(info: ServerInfo, prompt: Prompt, how: Ask, headers: Mapping[str, str]) -> Text:
    ids = _ids(info, prompt, how, headers)
    document: dict[str, object] = {"temperature": how.temperature, "ignore_eos": how.ignore_eos}
    if info.engine == "sglang":
        sampling = {**document, "max_new_tokens": how.max_tokens}
        said = _post(info, "/generate", {"input_ids": ids, "sampling_params": sampling}, how, headers)
        counts = said.get("meta_info")
        out, why = _numbers(said.get("output_ids")), _inside(counts, "finish_reason", "type")
    else:
        document |= {"model": info.model, "prompt": ids, "max_tokens": how.max_tokens, "return_token_ids": True}
        said = _post(info, "/v1/completions", document, how, headers)
        choices = said.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        out, why = _numbers(choice.get("token_ids")), choice.get("finish_reason")
        counts = _inside(said, "metrics", "speculative_decoding")
    if not out:
        raise _NoAnswerError("the answer has no token ids: vLLM gives them since 0.10.2, SGLang's /generate always")
    text = _with_counts(
        Text(ids=(*ids, *out), prompt=len(ids), domain=prompt.domain or "", finish=why if isinstance(why, str) else ""),
        counts if isinstance(counts, dict) else {},
    )
    fault = problem(text)
    if fault:
        raise _NoAnswerError(fault)
    return text


def _with_counts(text: Text, counts: Mapping[str, Any]) -> Text:
    histogram = _numbers(counts.get("acceptance_histogram", counts.get("spec_correct_drafts_histogram")))
    rounds = _numbers(counts.get("per_step_accepted"))
    if len(histogram) > _MOST_STEPS or (rounds and len(rounds) != sum(histogram)):
        return text
    return msgspec.structs.replace(
        text, histogram=tuple(histogram) if histogram else None, rounds=tuple(rounds) if rounds else None
    )


def _post(info: ServerInfo, path: str, document: object, how: Ask, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        reply = ask(info.url + path, document=document, deadline_s=how.deadline_s, most_bytes=_MOST_BYTES, headers=headers)
    except HttpError as error:
        raise _NoAnswerError(str(error)) from None
    try:
        read = decode_json(reply.body)
    except msgspec.DecodeError:
        read = None
    if reply.status != 200 or not isinstance(read, dict):
        # What the server says may quote the prompt; that a template is missing is all that is looked for.
        template = b"chat template" in reply.body.lower() or b"chat_template" in reply.body.lower()
        raise _NoAnswerError(f"{path} answers with status {reply.status}" + (": it has no chat template" if template else ""))
    return read


def _numbers(value: object) -> list[int]:
    """A list of small non-negative integers; empty for anything else."""
    if not isinstance(value, list) or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value):
        return []
    return value


def _inside(said: object, outer: str, inner: str) -> object:
    part = said.get(outer) if isinstance(said, dict) else None
    return part.get(inner) if isinstance(part, dict) else None
