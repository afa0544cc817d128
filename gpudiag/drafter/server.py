"""What a running server says it is: engine, version, model, how it speculates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from gpudiag.collect.http_ask import HttpError, Reply, ask
from gpudiag.collect.metrics import read_metrics
from gpudiag.errors import NoTargetError, NotInspectableError
from gpudiag.model.decoding import decode_json
from gpudiag.model.metrics import ServerMetrics
from gpudiag.model.reading import Failed, Ok
from gpudiag.model.server import Engine

DEADLINE_S: Final = 10.0
_MOST_BYTES: Final = 4 << 20
_LONGEST_NAME: Final = 200


class ServerInfo(Struct, frozen=True, kw_only=True):
    """A server as it stands before the first request. `metrics` is None where it has none; `steps` and `tree` as in ServerRun."""

    url: str
    engine: Engine
    version: str | None
    model: str
    metrics: ServerMetrics | None
    steps: int | None
    tree: bool
    drafts_per_round: int | None
    topk: int = 1
    """Children that each node of a tree of drafts keeps (SGLang); 1 for a chain."""
    window: int | None = None
    """Tokens that the drafter attends to at most (SGLang's --speculative-draft-window-size); None: all."""
    notes: tuple[str, ...] = ()


def inspect(url: str, *, model: str | None, headers: Mapping[str, str]) -> ServerInfo:
    """Ask a server what it is. Raises NoTargetError where none answers, NotInspectableError where it is no engine known here."""
    models = _models(url, headers)
    reading = read_metrics(url, deadline_s=DEADLINE_S, headers=headers)
    metrics = reading.value if isinstance(reading, Ok) else None
    engine = metrics.engine if metrics is not None else _owner(models)
    if engine not in ("sglang", "vllm"):
        raise NotInspectableError(
            f"{url} is neither SGLang nor vLLM by its /metrics and /v1/models",
            help="give the address of the server itself, not of a router; start SGLang with --enable-metrics",
        )
    notes = () if metrics is not None else (_no_metrics(reading),)
    served = _names(models)
    chosen = model or (served[0] if served else None)
    if chosen is None:
        raise NotInspectableError(f"{url}/v1/models names no model", help="--model NAME says which to ask")
    if engine == "sglang":
        return _sglang(url, headers, chosen, metrics, notes)
    counts = metrics.speculation if metrics is not None else None
    # Without speculation vLLM has none of these series; before the first draft it may not list positions.
    steps = len(counts.accepted_at) or None if counts is not None else 0 if metrics is not None else None
    version = _json(_get(url, "/version", headers)).get("version")
    return ServerInfo(
        url=url,
        engine=engine,
        version=_text(version),
        model=chosen,
        metrics=metrics,
        steps=steps,
        tree=False,
        drafts_per_round=steps,
        notes=notes,
    )


def _sglang(
    url: str, headers: Mapping[str, str], model: str, metrics: ServerMetrics | None, notes: tuple[str, ...]
) -> ServerInfo:
    """/server_info has the resolved arguments (0.5.6 and later; /get_server_info before and beside it)."""
    info = _json(_get(url, "/server_info", headers)) or _json(_get(url, "/get_server_info", headers))
    algorithm = info.get("speculative_algorithm")
    counts = metrics.speculation if metrics is not None else None
    steps = _count(info.get("speculative_num_steps")) or (int(counts.steps) if counts is not None and counts.steps else None)
    if info and algorithm is None:
        steps = 0
    nodes = _count(info.get("speculative_num_draft_tokens"))
    return ServerInfo(
        url=url,
        engine="sglang",
        version=_text(info.get("version")),
        model=model,
        metrics=metrics,
        steps=steps,
        tree=(topk := _count(info.get("speculative_eagle_topk")) or 1) > 1,
        topk=topk,
        window=_count(info.get("speculative_draft_window_size")),
        drafts_per_round=nodes - 1 if nodes and steps else steps,
        notes=(*notes, *_sglang_notes(info)),
    )


def _sglang_notes(info: dict[str, Any]) -> tuple[str, ...]:
    """Settings under which acceptance means something else."""
    made = []
    if info.get("speculative_adaptive") is True:
        made.append("the number of steps adapts to the load (speculative_adaptive): positions and cost are means over several")
    thresholds = (info.get(f"speculative_accept_threshold_{kind}") for kind in ("single", "acc"))
    if any(isinstance(t, float | int) and t < 1 for t in thresholds):
        made.append("an accept threshold below 1 takes drafts that the target would not have written")
    return tuple(made)


def _models(url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        reply = ask(f"{url}/v1/models", deadline_s=DEADLINE_S, most_bytes=_MOST_BYTES, headers=headers)
    except HttpError as error:
        raise NoTargetError(
            f"{url}: {error}", help="gpudiag attach shows the servers of this host and why one may not answer"
        ) from None
    if reply.status in (401, 403):
        raise NotInspectableError(
            f"{url} wants an API key (status {reply.status})", help="--api-key-env NAME reads it from a variable"
        )
    return _json(reply)


def _owner(models: dict[str, Any]) -> Engine:
    data = models.get("data")
    entry = data[0] if isinstance(data, list) and data else None
    owner = entry.get("owned_by") if isinstance(entry, dict) else None
    return "sglang" if owner == "sglang" else "vllm" if owner == "vllm" else "unknown"


def _names(models: dict[str, Any]) -> list[str]:
    data = models.get("data")
    entries = data if isinstance(data, list) else []
    return [name for entry in entries if isinstance(entry, dict) and (name := _text(entry.get("id")))]


def _no_metrics(reading: object) -> str:
    why = reading.error if isinstance(reading, Failed) else getattr(reading, "reason", "")
    return f"no counters: {why}"


def _get(url: str, path: str, headers: Mapping[str, str]) -> Reply | None:
    try:
        return ask(url + path, deadline_s=DEADLINE_S, most_bytes=_MOST_BYTES, headers=headers)
    except HttpError:
        return None


def _json(reply: Reply | None) -> dict[str, Any]:
    """The object in a reply; empty where there is none."""
    if reply is None or reply.status != 200:
        return {}
    try:
        decoded = decode_json(reply.body)
    except msgspec.DecodeError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _text(value: object) -> str | None:
    return value[:_LONGEST_NAME] if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1024 else None
