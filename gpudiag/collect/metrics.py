"""A server's /metrics, read into what both engines share.

Names as in vLLM 0.24-0.33 (v1/metrics, v1/spec_decode/metrics.py) and SGLang 0.5.17-0.5.23 (srt/observability). The Prometheus
text format is read here line by line, since a handful of some hundred series are wanted and one line that is wrong must not
cost the rest.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from gpudiag.collect.http_ask import HttpError, ask
from gpudiag.model.metrics import ServerMetrics, SpeculationCounts
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.server import Engine

MOST_BYTES: Final = 16 << 20
DEADLINE_S: Final = 3.0
_MOST_POSITIONS: Final = 64
_LINE: Final = re.compile(r"(vllm|sglang):([a-z_]{1,64})(?:\{(.*)\})?[ \t]+([^ \t]{1,40})(?:[ \t]+-?\d{1,20})?[ \t]*")
_LONGEST_LINE: Final = 1 << 16
"""Characters of a line: a series that is read here has a model's name and a few numbers for labels."""
_LABEL: Final = re.compile(r'(?<!\w)([a-zA-Z_]\w{0,63})="((?:[^"\\]|\\.)*)"\s*(?:,|$)')

Labels: TypeAlias = Mapping[str, str]
Samples: TypeAlias = dict[str, list[tuple[Labels, float]]]

_WANTED: Final = frozenset(
    {
        "num_requests_running",
        "num_requests_waiting",
        "request_success",
        "prompt_tokens",
        "generation_tokens",
        "spec_decode_num_drafts",
        "spec_decode_num_draft_tokens",
        "spec_decode_num_accepted_tokens",
        "spec_decode_num_accepted_tokens_per_pos",
        "num_running_reqs",
        "num_queue_reqs",
        "num_requests",
        "gen_throughput",
        "realtime_tokens",
        "spec_verify_calls",
        "spec_accept_length",
        "spec_accept_rate",
        "spec_num_steps",
        "spec_num_draft_tokens",
    }
)


def read_metrics(
    base: str, *, deadline_s: float = DEADLINE_S, headers: Mapping[str, str] | None = None
) -> Ok[ServerMetrics] | Unavailable | Failed:
    """Ask the server at `base` (http://host:port). Unavailable where it has no metrics, Failed where it does not answer."""
    at = time.time()
    try:
        reply = ask(f"{base}/metrics", deadline_s=deadline_s, most_bytes=MOST_BYTES, headers=headers)
    except HttpError as error:
        return Failed(error=f"{base}/metrics: {error}")
    if reply.status != 200:
        return Unavailable(
            reason=f"{base}/metrics answers with status {reply.status}",
            help="SGLang has metrics with --enable-metrics; vLLM unless started with --disable-log-stats",
        )
    metrics = parse_metrics(reply.body.decode("utf-8", "replace"), at)
    if metrics is None:
        return Unavailable(
            reason=f"{base}/metrics has no series of SGLang or vLLM",
            help="give the address of the server itself, not of a router or exporter",
        )
    return Ok(value=metrics, at=at, took_s=reply.took_s)


def parse_metrics(text: str, at: float) -> ServerMetrics | None:
    """The metrics in a body of Prometheus text; None if no line of it is of either engine. `at` is Unix time."""
    engine, samples = _samples(text)
    if engine == "vllm":
        return _vllm(samples, at)
    if engine == "sglang":
        return _sglang(samples, at)
    return None


def _samples(text: str) -> tuple[Engine | None, Samples]:
    engine: Engine | None = None
    found: Samples = {}
    for line in text.split("\n"):
        if not line.startswith(("vllm:", "sglang:")) or len(line) > _LONGEST_LINE:
            continue
        if (match := _LINE.fullmatch(line.rstrip("\r"))) is None:
            continue
        prefix, name, labels, number = match.groups()
        engine = engine or ("vllm" if prefix == "vllm" else "sglang")
        name = name.removesuffix("_total")
        value = _number(number)
        if name in _WANTED and prefix == engine and value is not None:
            found.setdefault(name, []).append((dict(_LABEL.findall(labels or "")), value))
    return engine, found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _vllm(samples: Samples, at: float) -> ServerMetrics:
    generated = _sum(samples, "generation_tokens")
    drafts = _sum(samples, "spec_decode_num_drafts")
    speculation = None
    if drafts is not None:
        speculation = SpeculationCounts(
            rounds=drafts,
            drafted=_sum(samples, "spec_decode_num_draft_tokens"),
            accepted=_sum(samples, "spec_decode_num_accepted_tokens"),
            accepted_at=_positions(samples.get("spec_decode_num_accepted_tokens_per_pos", ())),
        )
    return ServerMetrics(
        engine="vllm",
        at=at,
        running=_sum(samples, "num_requests_running"),
        waiting=_sum(samples, "num_requests_waiting"),
        finished=_sum(samples, "request_success"),
        prompt_tokens=_sum(samples, "prompt_tokens"),
        generated_tokens=generated,
        generated_live=generated,
        speculation=speculation,
    )


def _sglang(samples: Samples, at: float) -> ServerMetrics:
    schedulers = {name: _one_per_replica(series) for name, series in samples.items()}
    live = [(labels, n) for labels, n in schedulers.get("realtime_tokens", ()) if labels.get("mode") == "decode"]
    return ServerMetrics(
        engine="sglang",
        at=at,
        running=_sum(schedulers, "num_running_reqs"),
        waiting=_sum(schedulers, "num_queue_reqs"),
        finished=_sum(samples, "num_requests"),
        prompt_tokens=_sum(samples, "prompt_tokens"),
        generated_tokens=_sum(samples, "generation_tokens"),
        generated_live=sum(n for _, n in live) if live else None,
        tokens_per_s=_sum(schedulers, "gen_throughput"),
        speculation=_sglang_speculation(samples, schedulers),
    )


def _sglang_speculation(samples: Samples, schedulers: Samples) -> SpeculationCounts | None:
    """None where the gauges are all 0, as they are on a server that does not speculate."""
    found = SpeculationCounts(
        rounds=_sum(samples, "spec_verify_calls"),
        length=_mean_of_positive(schedulers, "spec_accept_length"),
        rate=_mean(schedulers, "spec_accept_rate"),
        steps=_mean_of_positive(schedulers, "spec_num_steps"),
        draft_tokens=_mean_of_positive(schedulers, "spec_num_draft_tokens"),
    )
    return found if found.rounds or found.length or found.steps else None


def _one_per_replica(series: Iterable[tuple[Labels, float]]) -> list[tuple[Labels, float]]:
    """The samples of one scheduler for each data-parallel replica: all ranks of it would report the same requests."""
    kept = list(series)
    first: dict[str, tuple[int, int]] = {}
    for labels, _ in kept:
        replica, rank = labels.get("dp_rank", ""), _rank(labels)
        first[replica] = min(rank, first.get(replica, rank))
    return [(labels, n) for labels, n in kept if _rank(labels) == first[labels.get("dp_rank", "")]]


def _rank(labels: Labels) -> tuple[int, int]:
    pipeline, tensor = labels.get("pp_rank", "0"), labels.get("tp_rank", "0")
    return _whole(pipeline), _whole(tensor)


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0


def _positions(series: Iterable[tuple[Labels, float]]) -> tuple[float, ...]:
    by_position: dict[int, float] = {}
    for labels, value in series:
        text = labels.get("position", "")
        if text.isascii() and text.isdigit() and len(text) < 4 and int(text) < _MOST_POSITIONS:
            by_position[int(text)] = by_position.get(int(text), 0.0) + value
    complete = sorted(by_position) == list(range(len(by_position)))
    return tuple(by_position[i] for i in range(len(by_position))) if complete else ()


def _sum(samples: Samples, name: str) -> float | None:
    series = samples.get(name)
    return sum(value for _, value in series) if series else None


def _mean(samples: Samples, name: str) -> float | None:
    series = samples.get(name)
    return sum(value for _, value in series) / len(series) if series else None


def _mean_of_positive(samples: Samples, name: str) -> float | None:
    values = [value for _, value in samples.get(name, ()) if value > 0]
    return sum(values) / len(values) if values else None
