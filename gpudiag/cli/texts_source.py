"""Where texts come from: a server that answers prompts, or a file of its answers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from gpudiag.cli.api_key import headers_from
from gpudiag.cli.output import say
from gpudiag.cli.progress import bar
from gpudiag.cli.writing import write_whole
from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from gpudiag.drafter.fit import Measured
    from gpudiag.drafter.prompts import Prompt
    from gpudiag.drafter.server import ServerInfo
    from gpudiag.model.replay import Text

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the options say of the texts."""

    prompts: Path | None
    requests: int | None
    max_tokens: int
    temperature: float
    concurrency: int
    raw: bool
    ignore_eos: bool
    model: str | None
    key_variable: str | None
    save: Path | None


@dataclass(frozen=True, kw_only=True)
class Found:
    """The texts, and what the server says of its speculation. `counted` is set where only its counters tell."""

    texts: tuple[Text, ...]
    steps: int | None = None
    topk: int = 1
    window: int | None = None
    draft_tokens: int | None = None
    counted: Measured | None = None


def source_options(command: F) -> F:
    """Give a command the options of a source of texts; it receives them as one argument `wanted`."""

    @click.option(
        "--prompts", type=click.Path(path_type=Path), metavar="FILE", help="Prompts for the server; default: a small set."
    )
    @click.option("-n", "--requests", type=click.IntRange(1), metavar="N", help="Use only the first N prompts, or texts of FILE.")
    @click.option("--max-tokens", type=click.IntRange(2, 65536), default=512, show_default=True, help="Longest answer.")
    @click.option("--temperature", type=click.FloatRange(0, 2), default=0.0, show_default=True)
    @click.option("--concurrency", type=click.IntRange(1, 256), default=4, show_default=True, help="Prompts at a time.")
    @click.option("--raw", is_flag=True, help="Send prompts as they are, without the chat template.")
    @click.option("--ignore-eos", is_flag=True, help="Have every answer reach --max-tokens.")
    @click.option("--model", metavar="NAME", help="Name under which the server serves; default: its first.")
    @click.option(
        "--api-key-env", "key_variable", metavar="VARIABLE", help="Environment variable that holds the server's API key."
    )
    @click.option("--save", type=click.Path(path_type=Path), metavar="FILE", help="Keep the server's answers, as token ids.")
    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        names = (
            "prompts", "requests", "max_tokens", "temperature", "concurrency", "raw", "ignore_eos", "model", "key_variable",
            "save",
        )  # fmt: skip
        wanted = Source(**{name: kwargs.pop(name) for name in names})
        return command(*args, wanted=wanted, **kwargs)

    return cast("F", wrapper)


def texts_of(source: str, wanted: Source) -> Found:
    """The texts of a file, or of the server at an address."""
    from gpudiag.drafter import texts

    if Path(source).exists():
        if wanted.save is not None:
            raise UsageError("--save keeps what a server answers; this is a file already", help="leave --save out")
        return Found(texts=texts.read(Path(source))[: wanted.requests])
    if "/" in source.removeprefix("http://").removeprefix("https://").rstrip("/") and "://" not in source:
        raise UsageError(f"{source}: no such file, and no address of a server", help="http://127.0.0.1:30000, or a file of texts")
    return _ask(source, wanted)


def _ask(source: str, wanted: Source) -> Found:
    from gpudiag.collect.http_ask import base_url
    from gpudiag.drafter import answers, prompts, request, server, texts

    headers = headers_from(wanted.key_variable)
    info = server.inspect(base_url(source), model=wanted.model, headers=headers)
    chosen: tuple[Prompt, ...] = (prompts.read(wanted.prompts) if wanted.prompts else prompts.built_in())[: wanted.requests]
    how = request.Ask(
        max_tokens=wanted.max_tokens,
        temperature=wanted.temperature,
        endpoint="text" if wanted.raw else "chat",
        ignore_eos=wanted.ignore_eos,
    )
    say(f"{info.url}: {len(chosen)} prompts, up to {wanted.max_tokens} tokens each, {wanted.concurrency} at a time")
    count = failed = tokens = 0
    with bar("answers", unit="prompts") as progress:

        def done(text: Text | None, why: str | None) -> None:
            nonlocal count, failed, tokens
            count, failed = count + 1, failed + (why is not None)
            tokens += len(text.answer) if text is not None else 0
            progress({"done": count, "of": len(chosen), "note": f"{tokens} tokens"})

        found = answers.answers(info, chosen, how, concurrency=wanted.concurrency, headers=headers, done=done)
    if failed:
        say(f"{failed} of {len(chosen)} prompts were not answered and are left out")
    if wanted.save is not None:
        write_whole(wanted.save, "".join(texts.lines(found)))
        say(f"kept {len(found)} answers in {wanted.save}: they hold the text of prompts and answers, as token ids")
    counted = None if any(t.histogram or t.rounds for t in found) else _counters(info, headers)
    return Found(
        texts=found,
        steps=info.steps or None,
        topk=info.topk,
        window=info.window,
        draft_tokens=info.drafts_per_round + 1 if info.drafts_per_round else None,
        counted=counted,
    )


def _counters(info: ServerInfo, headers: Mapping[str, str]) -> Measured | None:
    """What the counters moved while the server answered; other requests in that time are in it too."""
    from gpudiag.collect.metrics import read_metrics
    from gpudiag.drafter.fit import Measured
    from gpudiag.model.metrics import SpeculationCounts, speculation_between
    from gpudiag.model.reading import Ok
    from gpudiag.model.replay import DraftCounts

    before, after = info.metrics, read_metrics(info.url, headers=headers)
    if before is None or not isinstance(after, Ok) or after.value.speculation is None:
        return None
    counts = speculation_between(before.speculation or SpeculationCounts(), after.value.speculation)
    if not counts.rounds or not counts.accepted_at:
        return None
    at = tuple(int(n) for n in counts.accepted_at)
    if any(later > earlier for earlier, later in pairwise((int(counts.rounds), *at))):
        say("the server's counters are left out: they have later drafts accepted where earlier ones were not")
        return None
    say("the answers carry no counts of their own: the server's counters are used, which other requests move too")
    return Measured(total=DraftCounts(rounds=int(counts.rounds), at=at), source="counters")
