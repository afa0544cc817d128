"""Reads dumps in a process of its own: a hostile one can ask for any amount of memory, and several go faster than one.

`python -m gpudiag.collect.flight_recorder_worker PARENT_PID summarize DUMP ...` reduces a share of the dumps, `... places`
looks up single records of dumps that were accepted before, as the JSON after it lists them. Both answer in MessagePack.
"""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from gpudiag.collect.flight_recorder_load import Dump, RefusedError, load, read
from gpudiag.collect.flight_recorder_summary import Share, Summarizer, created_at, where
from gpudiag.collect.parent_death import die_with

MEMORY_LIMIT: Final = 2 << 30
_OTHER_FORM: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)

Wanted: TypeAlias = dict[str, list[tuple[str, int]]]
"""By dump: the records to look up, each by its group and its number there."""


class Place(Struct, frozen=True, array_like=True):
    """Where in the program a record was made, and when (Unix time, 0 if unknown)."""

    where: str = ""
    created_at: float = 0.0


def main() -> None:
    """Print a Share, or the places: for each dump a list in the order of its records."""
    die_with(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    # A dump is a tree: reference counts free it, and the collector would only walk it again and again.
    gc.disable()
    if sys.argv[2] == "places":
        wanted = msgspec.json.decode(sys.argv[3], type=Wanted)
        answer: object = {dump: places(Dump.of(dump), records) for dump, records in wanted.items()}
    else:
        answer = share(map(Dump.of, sys.argv[3:]))
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))


def share(dumps: Iterable[Dump]) -> Share:
    """Summaries of these files; what was refused is named with the reason."""
    summarizer = Summarizer()
    result = Share(table=summarizer.table, ranks=[], refused={})
    for dump in dumps:
        try:
            content = read(dump)
            result.ranks.append(summarizer.summarize(load(content.data), dump, content.written_at))
        except RefusedError as error:
            result.refused[dump.path] = str(error)
        except MemoryError:
            result.refused[dump.path] = "it wants more memory than a dump may take"
        except _OTHER_FORM as error:
            result.refused[dump.path] = f"another form than torch's: {type(error).__name__} {error}"[:200]
        except OSError as error:
            result.refused[dump.path] = error.strerror or str(error)
    return result


def places(dump: Dump, records: list[tuple[str, int]]) -> list[Place]:
    """Of each record in `records`; empty ones for a dump that is another one by now."""
    found: dict[tuple[str, int], Place] = {}
    try:
        for entry in load(read(dump).data)["entries"]:
            key = (str(entry["process_group"][0]), entry["collective_seq_id"])
            if key in records and not (entry["is_p2p"] and entry["p2p_seq_id"]):
                found.setdefault(key, Place(where(entry), created_at(entry)))
    except (OSError, MemoryError, *_OTHER_FORM):
        found.clear()
    return [found.get((group, number), Place()) for group, number in records]


if __name__ == "__main__":
    main()
