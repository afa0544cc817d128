"""Entry of every process: `python -m PACKAGE ROLE DIRECTORY ...`."""

from __future__ import annotations

import sys


def dispatch(role: str, arguments: list[str]) -> None:
    if role == "frontend":
        from .frontend import serve_frontend

        serve_frontend(*arguments)
    elif role == "worker":
        from .worker import serve_rank

        serve_rank(*arguments)
    elif role == "client":
        from .client import ask_once

        ask_once(*arguments)
    elif role == "visitor":
        from .client import keep_connection

        keep_connection(*arguments)
    elif role == "builder":
        from .kernels import build_forever

        build_forever(*arguments)
    elif role == "compiler":
        from .compiler import compile_stage

        compile_stage(*arguments)
    elif role == "feeder":
        from .feeder import feed_batches

        feed_batches(*arguments)
    elif role == "spare":
        from .spare import await_jobs

        await_jobs(*arguments)
    else:
        raise SystemExit(f"no such role: {role}")


dispatch(sys.argv[1], sys.argv[2:])
