"""Recorded logs and the noise to bury them in."""

from __future__ import annotations

import gzip
import io
from functools import cache
from pathlib import Path

from gpudiag.logs.facts import read_stream
from gpudiag.model.log import LogFacts
from gpudiag.model.report import Report
from gpudiag.rules.log_verdict import explain_log

DATA = Path(__file__).parent / "data"

NOISE_LINES = 5000

_STARTS = (
    "server_args=",
    "non-default args",
    "SIGTERM",
    "[shutdown]",
    "Shutting down",
    "Gracefully",
    "kill_process_tree",
    "Traceback",
)

VICTIMS = {
    "sglang": """\
[2026-11-29 23:59:01] Health check failed. Server couldn't get a response from detokenizer \
for last 20 seconds. tic start time: 23:58:41. last_heartbeat time: 23:58:40
[2026-11-29 23:59:02] Received sigquit from a child process. It usually means the child failed.
[2026-11-29 23:59:02 TP7] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/sglang/srt/utils/common.py", line 2730, in broadcast_pyobj
    dist.broadcast(tensor_size, src=src, group=dist_group)
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:25322

[2026-11-29 23:59:02] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
""",
    "vllm": """\
(EngineCore pid=999001) INFO 11-29 23:59:01 [shm_broadcast.py:871] No available shared memory broadcast block found \
in 60 seconds. This typically happens when some processes are hanging \
or doing some time-consuming work (e.g. compilation, weight/kv cache quantization).
(APIServer pid=999000) ERROR 11-29 23:59:02 [async_llm.py:906] AsyncLLM output_handler failed.
(APIServer pid=999000) ERROR 11-29 23:59:02 [async_llm.py:906] Traceback (most recent call last):
(APIServer pid=999000) ERROR 11-29 23:59:02 [async_llm.py:906]   File "/opt/venv/vllm/v1/engine/core_client.py", \
line 1235, in get_output_async
(APIServer pid=999000) ERROR 11-29 23:59:02 [async_llm.py:906]     raise self._format_exception(outputs) from None
(APIServer pid=999000) ERROR 11-29 23:59:02 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered \
an issue. See stack trace (above) for the root cause.
Traceback (most recent call last):
  File "/opt/venv/bin/vllm", line 8, in <module>
    sys.exit(main())
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
""",
}


@cache
def raw(name: str) -> bytes:
    """One recorded log as it was written."""
    return gzip.decompress((DATA / f"{name}.log.gz").read_bytes())


@cache
def noise(engine: str) -> tuple[bytes, ...]:
    """What a healthy server of this kind writes, repeated to NOISE_LINES lines."""
    source = raw("vllm_healthy" if engine == "vllm" else "sglang_healthy").splitlines(keepends=True)
    lines = [line for line in source if not any(s.encode() in line for s in _STARTS)]
    return tuple((lines * (NOISE_LINES // len(lines) + 1))[:NOISE_LINES])


def buried(name: str, engine: str) -> bytes:
    """The log with half of the noise ahead of it, the other half behind it, and the victims' messages last."""
    lines, half = noise(engine), NOISE_LINES // 2
    return b"".join(lines[:half]) + raw(name) + b"\n" + b"".join(lines[half:]) + VICTIMS[engine].encode()


def facts_of(data: bytes) -> LogFacts:
    return read_stream(io.BytesIO(data), "server.log")


def report_of(facts: LogFacts) -> Report:
    return explain_log(facts, version="0", host="here", generated_at="2026-11-29T00:00:00+00:00")
