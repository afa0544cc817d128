"""One request to a server, streamed, and what its answer tells of speculation. The text is not kept.

Where the counts stand: vLLM 0.32 with --per-request-spec-decode-metrics puts metrics.speculative_decoding into the last event;
SGLang 0.5.23 puts sglext.spec_tokens_details there when asked for, and meta_info with the same names into every event of
/generate. Both say the tokens so far with each event (continuous_usage_stats, meta_info), from which come the rounds one by one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from gpudiag.collect.http_ask import Event, HttpError, RefusedError, events
from gpudiag.drafter.prompts import Prompt
from gpudiag.drafter.server import ServerInfo
from gpudiag.model.decoding import decode_json
from gpudiag.model.speculation import RequestReading

Endpoint = Literal["chat", "text"]

_MOST_BYTES: Final = 1 << 30
"""Nothing of it is kept; SGLang's /generate repeats all the text with every event."""
_MOST_ROUNDS: Final = 1 << 20
_MOST_STEPS: Final = 64
_QUOTE: Final = 12


class Ask(Struct, frozen=True, kw_only=True):
    """How every prompt is put: as a chat, or as text without the chat template. `deadline_s` is for the whole answer."""

    max_tokens: int
    temperature: float = 0.0
    endpoint: Endpoint = "chat"
    deadline_s: float = 600.0
    ignore_eos: bool = False


class NoTemplateError(Exception):
    """The server has no chat template, or no chat endpoint."""


def send(
    info: ServerInfo,
    prompt: Prompt,
    how: Ask,
    *,
    headers: Mapping[str, str],
    opened: Callable[[socket.socket], None] | None = None,
) -> RequestReading:
    """Send one prompt and read its answer. A failure is in `problem`; raises only NoTemplateError."""
    path, document = _document(info, prompt, how)
    answer = Answer()
    began = time.monotonic()
    problem = None
    try:
        for event in events(
            info.url + path, document, deadline_s=how.deadline_s, most_bytes=_MOST_BYTES, headers=headers, opened=opened
        ):
            answer.take(event)
    except RefusedError as error:
        said = _said(error.body)
        if how.endpoint == "chat" and (error.status in (404, 405, 501) or "chat template" in said.lower()):
            raise NoTemplateError from None
        # An error may quote what was sent; a prompt is shown nowhere.
        quoted = any(m.content.strip()[:_QUOTE] in said for m in prompt.messages)
        problem = f"status {error.status}: {said}" if said and not quoted else f"status {error.status}"
    except HttpError as error:
        problem = str(error)
    if problem is None:
        problem = answer.problem or (None if answer.finished else "the answer broke off")
    return answer.reading(prompt, began, problem)


def _document(info: ServerInfo, prompt: Prompt, how: Ask) -> tuple[str, dict[str, Any]]:
    common: dict[str, Any] = {"model": info.model, "max_tokens": how.max_tokens, "temperature": how.temperature, "stream": True}
    common["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    common |= _to_the_end(how)
    if info.engine == "sglang":
        if how.endpoint == "text":
            sampling = {"max_new_tokens": how.max_tokens, "temperature": how.temperature, **_to_the_end(how)}
            return "/generate", {"text": prompt.text, "sampling_params": sampling, "stream": True}
        common["return_spec_tokens_details"] = True
    if how.endpoint == "chat":
        return "/v1/chat/completions", {**common, "messages": msgspec.to_builtins(prompt.messages)}
    return "/v1/completions", {**common, "prompt": prompt.text}


def _to_the_end(how: Ask) -> dict[str, bool]:
    return {"ignore_eos": True} if how.ignore_eos else {}


class Answer:
    """What the events of one answer add up to."""

    def __init__(self) -> None:
        self.first_at: float | None = None
        self.last_at = 0.0
        self.first_tokens = 0
        self.tokens = 0
        self.prompt_tokens: int | None = None
        self.grown: list[int] = []
        self.counts: dict[str, Any] = {}
        self.finished = False
        self.problem: str | None = None

    def take(self, event: Event) -> None:
        try:
            said = decode_json(event.data)
        except msgspec.DecodeError:
            self.problem = "an event that is no JSON"
            return
        if not isinstance(said, dict):
            return
        if "error" in said:
            self.problem = _message(said["error"])
        meta = said.get("meta_info")
        choices = said.get("choices")
        for part in (meta, *(choices if isinstance(choices, list) else ())):
            if isinstance(part, dict) and part.get("finish_reason") is not None:
                self.finished = True
        self._tokens(meta if isinstance(meta, dict) else said.get("usage"), event.at)
        for counts in (_inside(said, "metrics", "speculative_decoding"), _inside(said, "sglext", "spec_tokens_details"), meta):
            if isinstance(counts, dict):
                self.counts.update(counts)

    def _tokens(self, usage: object, at: float) -> None:
        if not isinstance(usage, dict):
            return
        self.prompt_tokens = _whole(usage.get("prompt_tokens")) or self.prompt_tokens
        tokens = _whole(usage.get("completion_tokens")) or 0
        if tokens <= self.tokens:
            return
        if self.first_at is None:
            self.first_at, self.first_tokens = at, tokens
        elif len(self.grown) < _MOST_ROUNDS:
            self.grown.append(tokens - self.tokens)
        self.tokens, self.last_at = tokens, at

    def reading(self, prompt: Prompt, began: float, problem: str | None) -> RequestReading:
        made = RequestReading(number=prompt.number, domain=prompt.domain, prompt_tokens=self.prompt_tokens, problem=problem)
        if self.first_at is None:
            return made if problem else msgspec.structs.replace(made, problem="the answer holds no token, or no count of them")
        made = msgspec.structs.replace(
            made,
            tokens=self.tokens,
            first_s=self.first_at - began,
            decode_s=self.last_at - self.first_at,
            decode_tokens=self.tokens - self.first_tokens,
            steps=tuple(tokens - 1 for tokens in self.grown),
        )
        return made if problem else with_counts(made, self.counts)


def with_counts(reading: RequestReading, counts: Mapping[str, Any]) -> RequestReading:
    """Add what the response says of rounds. `reading.steps` holds what each piece of the answer looks like as a round."""
    histogram = counts.get("acceptance_histogram", counts.get("spec_correct_drafts_histogram"))
    rounds_of = [_whole(n) for n in histogram] if isinstance(histogram, list) and len(histogram) <= _MOST_STEPS else []
    kept = [n for n in rounds_of if n is not None]
    rounds = _whole(counts.get("num_spec_steps", counts.get("spec_verify_ct")))
    if not rounds or len(kept) != len(rounds_of) or sum(kept) != rounds:
        return reading
    told = counts.get("per_step_accepted")
    steps = tuple(n for n in map(_whole, told) if n is not None) if isinstance(told, list) else rounds_in(reading.steps, kept)
    return msgspec.structs.replace(
        reading,
        rounds=rounds,
        accepted=(accepted := sum(i * n for i, n in enumerate(kept))),
        drafted=_whole(counts.get("num_draft_tokens", counts.get("spec_num_proposed_drafts"))),
        accepted_at=tuple(sum(kept[i:]) for i in range(1, len(kept))),
        steps=steps if len(steps) == rounds and sum(steps) == accepted else (),
        counted_by="response",
    )


def rounds_in(pieces: tuple[int, ...], histogram: Sequence[int]) -> tuple[int, ...]:
    """Accepted drafts of each round from the pieces of the answer; empty unless every piece was a round.

    The last round may have been cut by the limit of tokens, so its own count is what the histogram has left.
    """
    if not pieces or len(pieces) != sum(histogram):
        return ()
    left = list(histogram)
    for accepted in pieces[:-1]:
        if not 0 <= accepted < len(left) or left[accepted] == 0:
            return ()
        left[accepted] -= 1
    return (*pieces[:-1], left.index(1))


def _inside(said: dict[str, Any], outer: str, inner: str) -> object:
    """A count of the event as a whole, or of its only choice."""
    choices = said.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    for place in (said, first):
        part = place.get(outer) if isinstance(place, dict) else None
        if isinstance(part, dict) and part.get(inner) is not None:
            return part[inner]
    return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None


def _said(body: bytes) -> str:
    """The message of an error in JSON, else the beginning of the body."""
    try:
        return _message(decode_json(body))
    except msgspec.DecodeError:
        return body[:200].decode("utf-8", "replace").strip()


def _message(error: object) -> str:
    if isinstance(error, dict):
        inner = error.get("error", error.get("message", error.get("detail")))
        return _message(inner) if inner is not None else "an error without a message"
    return str(error)[:200]
