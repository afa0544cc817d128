"""GPD120: files of the model are missing or cut off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.modelfiles import ModelFiles
from gpudiag.model.reading import NOT_ASKED, Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread
from gpudiag.rules.preflight.words import listing, plural, size


def evaluate(facts: Facts) -> Answer:
    reading = facts.model
    if not isinstance(reading, Ok):
        return skipped("no model named (--model)") if reading == NOT_ASKED else unread(reading)
    files = reading.value
    return found(_faults(files), passed(f"{plural(files.shards, 'weight file')}, {size(files.weight_bytes)}"))


def _faults(files: ModelFiles) -> Iterator[Finding]:
    for names, what, why in (
        (files.missing, "missing", "the index names them and they are not there"),
        (files.short, "cut off", "their headers promise more bytes than the files have"),
        (files.broken_links, "links to nothing", "the cache that they point into was cleaned or not mounted"),
    ):
        if names:
            paths = [f"{files.path}/{name}" for name in names]
            yield CHECK.finding(
                f"{plural(len(names), 'model file')} {'is' if len(names) == 1 else 'are'} {what}: {listing(list(names))}",
                [seen("file-system", why, "\n".join(paths[:8]))],
                ("fetch the model again: huggingface-cli download NAME --local-dir DIR takes only what is missing",),
                culprits=tuple(Culprit(node=f"file:{path}", path=path) for path in paths[:8]),
            )
    if not files.shards:
        yield CHECK.finding(
            f"{files.path} holds no weights",
            [seen("file-system", "no .safetensors, .bin or .gguf file is there")],
            ("name the directory that has config.json and the weights",),
            culprits=(Culprit(node=f"file:{files.path}", path=files.path),),
        )
    if files.shards and not files.has_tokenizer:
        yield CHECK.finding(
            f"{files.path} has no tokenizer",
            [
                seen(
                    "file-system",
                    "no tokenizer.json, tokenizer_config.json, tokenizer.model, tiktoken or vocabulary file is there",
                )
            ],
            ("copy it from the model's origin, or name one with --tokenizer",),
            culprits=(Culprit(node=f"file:{files.path}", path=files.path),),
            severity="warning",
        )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD120",
        name="model-files-incomplete",
        severity="error",
        category="model",
        asks="are all files of the model there and whole?",
    ),
    evaluate=evaluate,
)
