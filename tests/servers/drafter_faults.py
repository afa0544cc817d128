#!/usr/bin/env python3
"""A real vLLM with EAGLE-3 on the CPU, served right and served wrong, and what `gpudiag drafter replay` says of it.

    python -m tests.servers.drafter_faults --model DIRECTORY --out DIRECTORY [--python P] [-- ENGINE OPTIONS]

One server after another with the target of --model: its drafter (draft) as it is, with each layer one too late, with the state
after the norm fed back, with target ids in d2t, and with another embedding. Each is replayed with the drafter as it is. The table
is printed, and it exits with 1 if a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.gpu.drafter import IDS, Served, copy_of
from tests.servers import environments
from tests.servers.drafter_loop import ENGINE_OPTIONS, ROUNDS
from tests.servers.weights import add_other_embedding, make_absolute

EXPECTED: Final[dict[str, set[str | None]]] = {
    "healthy/replay": {None},
    "layers/replay": {"GPD602"},
    "feedback/replay": {"GPD608"},
    "vocabulary/replay": {"GPD603"},
    "embedding/replay": {"GPD610"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="directory with target and draft (in the form of SGLang)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", type=Path, help="interpreter that imports vLLM and torch; default: that of make test-servers")
    parser.add_argument("--ready", type=float, default=300.0, help="seconds that a start may take (default 300)")
    parser.add_argument("--only", nargs="*", default=[name.partition("/")[0] for name in EXPECTED], metavar="FAULT")
    parser.add_argument("engine_options", nargs="*", help="for vLLM, behind --")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    options.engine, options.lock, options.force, options.limit, options.most = "vllm", None, True, 400.0, 16
    options.engine_options = [*ENGINE_OPTIONS["vllm"], *ROUNDS["vllm"], *options.engine_options]
    options.python = options.python or environments.python_of("vllm")
    options.target, options.expected = options.model / "target", EXPECTED
    draft = options.model / "draft"
    config = json.loads((draft / "config.json").read_text())
    learnt, vocabulary = [i + 1 for i in config["eagle_config"][IDS]], config["vocab_size"]
    options.meant = copy_of(draft, options.out / "drafts" / "meant", **{IDS: learnt})
    faults: dict[str, tuple[dict[str, Any], Callable[[Path], None]]] = {
        "healthy": ({}, lambda _: None),
        "layers": ({IDS: [i + 1 for i in learnt]}, lambda _: None),
        "feedback": ({"norm_output": True}, lambda _: None),
        "vocabulary": ({}, lambda file: make_absolute(file, vocabulary)),
        "embedding": ({}, lambda file: add_other_embedding(file, options.target / "model.safetensors")),
    }
    rows: list[dict[str, Any]] = []
    for name in options.only:
        numbers, damage = faults[name]
        drafter = copy_of(options.meant, options.out / "drafts" / name, **numbers)
        damage(drafter / "model.safetensors")
        server = Served(options, name, options.python, drafter, 8181)
        server.ask()
        rows += server.rows
    return 0 if len(rows) == len(options.only) and all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
