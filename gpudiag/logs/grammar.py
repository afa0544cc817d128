"""What the start of a line says: time, level, process, rank. One grammar for each writer, tried in a fixed order."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from gpudiag.model.log import NO_RANK, NOBODY, Speaker
from gpudiag.model.server import Rank


class Prefix(Struct, frozen=True, kw_only=True):
    """The parsed start of a line. `form` names the grammar; `text` is what is left."""

    form: str
    text: str
    speaker: Speaker = NOBODY
    level: str | None = None
    module: str | None = None
    clock_s: float | None = None


_DAYS_BEFORE: Final = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_MONTHS: Final = {
    m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}
_LEVELS: Final = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "V": "DEBUG"}

_CONTAINER: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(?:Z|[+-]\d\d:?\d\d)(?: (?:stdout|stderr) [FP])? )?(?:[\w.-]{1,64} +\| )?"
)
"""What a container runtime puts in front: the CRI log form, kubectl --timestamps, docker compose."""

_VLLM_HEAD: Final = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.\d+)? \[?([^\]\s]{1,200}:\d+)\] ?"
)
_TAG: Final = re.compile(r"\(([A-Za-z_][\w:.-]{0,60})(?: rank=(\d+))? pid=(\d+)(?:, ip=([\w.:]+))?\) ?")
_SGLANG: Final = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d+)?((?: [A-Z][A-Za-z_]{0,12}\d+)*)\] ?")
_SG_LEVEL: Final = re.compile(r"(?:(INFO|WARNING|ERROR|CRITICAL|DEBUG) )?(?:[\w.]+\.py:\d+: )?")
_RANKED: Final = re.compile(r"\[(rank|default)(\d{1,6})\]:")
_GLOG: Final = re.compile(r"\[?([IWEFV])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)(?: (\d+))? ([^\]\s]{1,300}:\d+)\] ?")
_NCCL: Final = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] )?([\w.-]{1,255}):(\d+):(\d+) "
    r"\[(-?\d+)\] (?:([\w./+-]+:\d+) )?NCCL (INFO|WARN|ABORT|TRACE|VERSION)\b ?"
)
_UVICORN: Final = re.compile(r"(INFO|WARNING|ERROR|CRITICAL|DEBUG): {2,}")
_KERNEL: Final = re.compile(
    r"(?:<\d+>)?(?:\[ *\d+\.\d+\] ?|\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d+) (\d\d):(\d\d):(\d\d) \d{4}\] ?"
    r"|([A-Z][a-z]{2}) [ \d]\d \d\d:\d\d:\d\d \S+ kernel: (?:\[ *\d+\.\d+\] ?)?)"
)
_STD: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,]\d+)?(?: -)? (?:\[?(DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?)\b[ :-]*"
)
_COORDINATE: Final = re.compile(r"(DP|PP|TP|EP)_?(\d+)")
_WORKER_INDEX: Final = re.compile(r"(?:VllmWorker(?:Process)?|worker|Worker)[-_](\d+)$")
_RANK_FIELDS: Final = {"DP": "dp", "PP": "pp", "TP": "tp", "EP": "ep"}


def clock(month: int, day: int, hour: int, minute: int, second: float) -> float | None:
    """Seconds since the start of a leap year, or None for a date that does not exist."""
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 62):
        return None
    return ((_DAYS_BEFORE[month - 1] + day - 1) * 24 + hour) * 3600.0 + minute * 60 + second


@lru_cache(maxsize=4096)
def rank_of(tag: str) -> Rank:
    """The coordinates in a process tag: 'Worker_DP0_TP3', 'DP1 TP0', 'VllmWorker-1'. A single dimension is the global rank."""
    found = {_RANK_FIELDS[name]: int(index) for name, index in _COORDINATE.findall(tag) if len(index) < 6}
    if found:
        others = [v for k, v in found.items() if k not in ("tp", "ep")]
        alone = found.get("tp") if not any(others) else None
        if len(found) == 1:
            alone = next(iter(found.values()))
        return Rank(global_=alone, tp=found.get("tp"), pp=found.get("pp"), dp=found.get("dp"), ep=found.get("ep"))
    index = _WORKER_INDEX.search(tag)
    return Rank(global_=int(index.group(1))) if index and len(index.group(1)) < 6 else NO_RANK


def parse(line: str) -> Prefix:
    """Take the prefix off one clean line. A line that no grammar knows comes back whole, of form 'plain'."""
    if line[:1].isdigit() or " | " in line[:80]:
        outer = _CONTAINER.match(line)
        if outer is not None and outer.end():
            line = line[outer.end() :]
    first = line[:1]
    if first == "(":
        return _tagged(line)
    if first == "[":
        return _bracketed(line)
    if first in "IWEFV" and first:
        return _glog(line, NOBODY) or _leveled(line)
    return _leveled(line)


def _tagged(line: str) -> Prefix:
    head = _TAG.match(line)
    if head is None:
        return Prefix(form="plain", text=line)
    tag, rank, pid, host = head.groups()
    where = Rank(global_=int(rank[:6])) if rank else rank_of(tag)
    speaker = Speaker(tag=tag, pid=int(pid[:9]), rank=where, host=host)
    rest = line[head.end() :]
    inner = _vllm(rest, speaker)
    if inner is not None:
        return inner
    return Prefix(form="tag", text=rest, speaker=speaker)


def _vllm(rest: str, speaker: Speaker) -> Prefix | None:
    head = _VLLM_HEAD.match(rest)
    if head is None:
        return None
    level, month, day, hour, minute, second, module = head.groups()
    at = clock(int(month), int(day), int(hour), int(minute), int(second))
    text = rest[head.end() :]
    if not speaker.named:
        # vLLM of early 2025 wrote the tag behind the head: 'ERROR 03-01 10:00:00 [core.py:387] (VllmWorker rank=0 pid=5) ...'
        tag = _TAG.match(text)
        if tag is not None:
            inner = _tagged(text)
            speaker, text = inner.speaker, inner.text
    return Prefix(form="vllm", text=text, speaker=speaker, level=level, module=module, clock_s=at)


def _bracketed(line: str) -> Prefix:
    head = _SGLANG.match(line)
    if head is not None:
        _, month, day, hour, minute, second, tag = head.groups()
        rest = line[head.end() :]
        nccl = _nccl(line)
        if nccl is not None:
            return nccl
        extra = _SG_LEVEL.match(rest)
        level = extra.group(1) if extra else None
        tag = tag.strip()
        speaker = Speaker(tag=tag, rank=rank_of(tag)) if tag else Speaker(tag="root")
        at = clock(int(month), int(day), int(hour), int(minute), int(second))
        return Prefix(form="sglang", text=rest[extra.end() :] if extra else rest, speaker=speaker, level=level, clock_s=at)
    ranked = _RANKED.match(line)
    if ranked is not None:
        rest = line[ranked.end() :]
        speaker = Speaker(tag=f"rank{int(ranked.group(2))}", rank=Rank(global_=int(ranked.group(2))))
        inner = _glog(rest, speaker)
        if inner is not None:
            return inner
        return Prefix(form="rank", text=rest[1:] if rest[:1] == " " else rest, speaker=speaker)
    return _glog(line, NOBODY) or _kernel(line) or _nccl(line) or Prefix(form="plain", text=line)


def _glog(line: str, speaker: Speaker) -> Prefix | None:
    head = _GLOG.match(line)
    if head is None:
        return None
    level, month, day, hour, minute, second, fraction, pid, module = head.groups()
    at = clock(int(month), int(day), int(hour), int(minute), float(f"{second}.{fraction[:9]}"))
    if pid and not speaker.named:
        speaker = Speaker(pid=int(pid[:9]))
    return Prefix(form="glog", text=line[head.end() :], speaker=speaker, level=_LEVELS[level], module=module, clock_s=at)


def _kernel(line: str) -> Prefix | None:
    head = _KERNEL.match(line)
    if head is None or not head.end():
        return None
    month, day, hour, minute, second = head.groups()[:5]
    at = clock(_MONTHS[month], int(day), int(hour), int(minute), int(second)) if month in _MONTHS else None
    return Prefix(form="kernel", text=line[head.end() :], speaker=NOBODY, clock_s=at)


def _nccl(line: str) -> Prefix | None:
    head = _NCCL.match(line)
    if head is None:
        return None
    host, pid, _, _, module, level = head.groups()
    return Prefix(form="nccl", text=line[head.end() :], speaker=Speaker(pid=int(pid[:9]), host=host), level=level, module=module)


def _leveled(line: str) -> Prefix:
    found = _vllm(line, NOBODY)
    if found is not None:
        return found
    if " NCCL " in line:
        found = _nccl(line)
        if found is not None:
            return found
    head = _UVICORN.match(line)
    if head is not None:
        return Prefix(form="uvicorn", text=line[head.end() :], level=head.group(1))
    if line[:1].isdigit():
        std = _STD.match(line)
        if std is not None:
            _, month, day, hour, minute, second, level = std.groups()
            at = clock(int(month), int(day), int(hour), int(minute), int(second))
            return Prefix(form="logging", text=line[std.end() :], level=level, clock_s=at)
    if " kernel: " in line[:120] or line.startswith("<"):
        found = _kernel(line)
        if found is not None:
            return found
    return Prefix(form="plain", text=line)
