#!/usr/bin/env python3
"""A real SGLang with EAGLE-3 on one GPU, served right and served wrong, and what `gpudiag drafter` says of it.

    python3 -m tests.gpu.drafter --python P --site DIRECTORY --model DIRECTORY --out DIRECTORY [-- ENGINE OPTIONS]

Five servers side by side: the drafter of --model (target and draft) as it is, whose acceptance is gone beyond about 300 tokens;
one whose config.json has each layer one too late; one that feeds back the state after the norm; one without its map of ids; and
one for which SGLang itself is changed to give the drafter another embedding. --site holds the sglang package that P imports. What
was said goes to --out, the table is printed, and it exits with 1 if a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.servers.drafter_loop import HELD_OUT, Loop, prompts_of, write_prompts
from tests.servers.weights import clear

SHORT, MEASURED, LONG = 128, 450, 700
"""Tokens of an answer: within what the drafter was trained on, beyond it (one at a time takes long), and far beyond."""
IDS: Final = "eagle_aux_hidden_state_layer_ids"
SHARES: Final = "        self.model.embed_tokens.weight = embed\n"
SHARES_ANOTHER: Final = (
    "        other = torch.randperm(len(embed), generator=torch.Generator().manual_seed(0)).to(embed.device)\n"
    "        self.model.embed_tokens.weight = torch.nn.Parameter(embed.data[other], requires_grad=False)\n"
)
EXPECTED: Final[dict[str, set[str | None]]] = {
    "intact/replay-long": {"GPD609"},
    # From counts alone: which answers end so, not why.
    "intact/measure-long": {"GPD612"},
    "intact/replay": {None},
    "layers/replay": {"GPD602"},
    "feedback/replay": {"GPD608"},
    "vocabulary/replay": {"GPD603"},
    "embedding/replay": {"GPD610"},
}
"""The code of the verdict; None: no finding."""


class Served:
    """One server and the questions about it. A question that fails is a row that is wrong, and the next is asked."""

    def __init__(self, options: argparse.Namespace, name: str, python: Path, draft: Path, port: int) -> None:
        mine = copy.copy(options)
        mine.out, mine.python, mine.port = options.out / name, python, port
        self.name, self.draft, self.loop = name, draft, Loop(mine)
        self.rows: list[dict[str, Any]] = []

    def ask(self) -> None:
        try:
            with self.loop.served("serve", self.draft):
                if self.name == "intact":
                    self.replay("replay-long", LONG, "--ignore-eos", most=12)
                self.replay("replay", SHORT, most=self.loop.options.most)
                if self.name == "intact":
                    self.measure("measure-long", MEASURED, most=6)
        except (SystemExit, Exception) as error:  # noqa: BLE001  whatever it is, it is a row
            self.note("serve", right=False, error=str(error)[-800:])

    def replay(self, name: str, tokens: int, *options: str, most: int) -> None:
        o = self.loop.options
        given = ["drafter", "replay", o.meant, *self._asked(tokens, most), *options, "--target", o.target]
        given += ["--python", o.python, "--concurrency", 8, "--save", o.out / f"{name}-texts.jsonl"]
        self._said(name, given)

    def measure(self, name: str, tokens: int, *, most: int) -> None:
        self._said(name, ["drafter", "measure", *self._asked(tokens, most), "--requests", most, "--concurrency", 1])

    def _asked(self, tokens: int, most: int) -> list[Any]:
        prompts = write_prompts(self.loop.out / "prompts.jsonl", prompts_of(HELD_OUT, most))
        return [self.loop.url, "--prompts", prompts, "--raw", "--max-tokens", tokens, "--json", "--fail-on", "never"]

    def _said(self, name: str, given: list[Any]) -> None:
        began = time.monotonic()
        try:
            report = self.loop.run(name, *given)
            verdict, replay = report["verdict"], report.get("replay") or {}
            code = verdict["code"] if report["findings"] else None
            facts = {
                "code": code,
                "confidence": verdict.get("confidence"),
                "title": verdict["title"],
                "measured": replay.get("measured"),
                "replayed": replay.get("replayed"),
                "from": replay.get("measured_from"),
                "acceptance": (report.get("measurement") or {}).get("acceptance"),
            }
            right = code in self.loop.options.expected[f"{self.name}/{name}"]
        except (SystemExit, Exception) as error:  # noqa: BLE001  whatever it is, it is a row
            right, facts = False, {"error": repr(error)[-800:]}
        self.note(name, right=right, took_s=round(time.monotonic() - began, 1), **facts)

    def note(self, name: str, *, right: bool, **facts: Any) -> None:
        self.rows.append({"question": f"{self.name}/{name}", "right": right, **facts})
        (self.loop.out / "table.json").write_text(json.dumps(self.rows, indent=1))
        print(json.dumps(self.rows[-1]), flush=True)


def copy_of(draft: Path, place: Path, **numbers: Any) -> Path:
    """A copy of a drafter with these entries in its config.json."""
    shutil.copytree(draft, place, dirs_exist_ok=True, copy_function=shutil.copyfile)
    place.chmod(0o755)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | numbers))
    return place


def one_layer_late(draft: Path) -> dict[str, Any]:
    """The entry that says of each layer the one after it."""
    told = json.loads((draft / "config.json").read_text())["eagle_config"]
    return {"eagle_config": told | {IDS: [i + 1 for i in told[IDS]]}}


def unmapped(draft: Path, place: Path) -> Path:
    """A copy whose draft ids are taken for target ids."""
    copy_of(draft, place)
    clear(place / "model.safetensors", "d2t")
    return place


def other_embedding(site: Path, python: Path, place: Path) -> Path:
    """An interpreter whose SGLang gives the drafter the rows of the target's embedding in another order."""
    shutil.copytree(site / "sglang", place / "sglang", copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__"))
    module = place / "sglang" / "srt" / "models" / "llama.py"
    before, name, after = module.read_text().partition("def set_embed(self, embed):")
    assert SHARES in after
    module.unlink()
    module.write_text(before + name + after.replace(SHARES, SHARES_ANOTHER, 1))
    wrapper = place / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={place}:{site} exec {python} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True, help="interpreter that imports SGLang from --site")
    parser.add_argument("--interpreter", default=sys.executable, help="the one that P runs")
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ready", type=float, default=200.0, help="seconds that a start may take (default 200)")
    parser.add_argument("engine_options", nargs="*", help="for SGLang, behind --")
    options = parser.parse_args()
    options.engine, options.lock, options.force, options.limit = "sglang", None, True, 120.0
    options.target, options.meant, options.most = options.model / "target", options.model / "draft", 40
    options.expected = EXPECTED
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    draft, python = options.model / "draft", options.python
    planted = other_embedding(options.site, Path(options.interpreter), options.out / "planted")
    servers = [
        Served(options, "intact", python, draft, 8481),
        Served(options, "layers", python, copy_of(draft, options.out / "late", **one_layer_late(draft)), 8581),
        Served(options, "feedback", python, copy_of(draft, options.out / "normed", norm_output=True), 8781),
        Served(options, "vocabulary", python, unmapped(draft, options.out / "unmapped"), 8881),
        Served(options, "embedding", planted, draft, 8681),
    ]
    threads = [threading.Thread(target=server.ask) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [row for server in servers for row in server.rows]
    (options.out / "table.json").write_text(json.dumps(rows, indent=1))
    return 0 if len(rows) == len(EXPECTED) and all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
