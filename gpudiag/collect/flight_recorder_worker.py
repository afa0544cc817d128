"""Reads and reduces a share of the dumps: `python -m gpudiag.collect.flight_recorder_worker PARENT_PID FILE ...`.

A process of its own because a hostile dump can ask for any amount of memory, and because several go faster than one.
"""

from __future__ import annotations

import gc
import resource
import sys
from typing import Final

import msgspec

from gpudiag.collect.flight_recorder_load import MAX_BYTES, RefusedError, load
from gpudiag.collect.flight_recorder_summary import Share, Summarizer
from gpudiag.collect.parent_death import die_with

MEMORY_LIMIT: Final = 2 << 30


def main() -> None:
    """Print a Share in MessagePack."""
    die_with(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    # A dump is a tree: reference counts free it, and the collector would only walk it again and again.
    gc.disable()
    sys.stdout.buffer.write(msgspec.msgpack.encode(share(sys.argv[2:])))


def share(paths: list[str]) -> Share:
    """Summaries of these files; what was refused is named with the reason."""
    summarizer = Summarizer()
    result = Share(table=summarizer.table, ranks=[], refused={})
    for path in paths:
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
            result.ranks.append(summarizer.summarize(load(data), path))
        except RefusedError as error:
            result.refused[path] = str(error)
        except MemoryError:
            result.refused[path] = "it wants more memory than a dump may take"
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            result.refused[path] = f"another form than torch's: {type(error).__name__} {error}"[:200]
        except OSError as error:
            result.refused[path] = str(error)
    return result


if __name__ == "__main__":
    main()
