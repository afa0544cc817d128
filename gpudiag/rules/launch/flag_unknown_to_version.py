"""GPD701 before a start: the installed engine does not know an option, or a value of one that takes only some."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from gpudiag.engines.launching import DIALECTS
from gpudiag.engines.words import Given, taken_apart
from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Finding
from gpudiag.model.flags import FlagTable
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread
from gpudiag.rules.preflight.words import listing, plural


def evaluate(facts: Facts) -> Answer:
    if not facts.asked.arguments:
        return skipped("no options named")
    if not isinstance(facts.flags, Ok):
        return unread(facts.flags)
    table = facts.flags.value
    options = taken_apart(facts.asked.arguments, table)
    return found(_faults(options, table), passed(f"{plural(len(options), 'option')}, all known to {_engine(table)}"))


def _faults(options: tuple[Given, ...], table: FlagTable) -> Iterator[Finding]:
    for option in options:
        if option.flag is None:
            yield _unknown(option, table)
        elif option.flag.choices is not None:
            for value in option.values:
                if value not in option.flag.choices:
                    yield _bad_choice(option, value, table)


def _unknown(option: Given, table: FlagTable) -> Finding:
    near = nearest(option.name, table)
    return CHECK.finding(
        f"{_engine(table)} has no option {option.name[:80]}" + (f"; nearest: {near[0]}" if near else ""),
        [seen("interpreter", f"{plural(len(table.flags), 'option')} in its argument parser, not this one", option.name[:200])],
        [f"write {one} instead" for one in near] or [f"leave it out, or look for another: {_help(table)}"],
    )


def _bad_choice(option: Given, value: str, table: FlagTable) -> Finding:
    choices = option.flag.choices if option.flag is not None and option.flag.choices is not None else ()
    near = difflib.get_close_matches(value, choices, n=1)
    return CHECK.finding(
        f"{_engine(table)} does not take {value[:60]!r} for {option.name}" + (f"; nearest: {near[0]}" if near else ""),
        [seen("interpreter", f"its argument parser takes: {listing(list(choices), 12)}", f"{option.name} {value[:100]}")],
        [f"{option.name} {near[0]}" if near else f"one of: {listing(list(choices), 12)}"],
    )


def nearest(name: str, table: FlagTable) -> tuple[str, ...]:
    """What the option is called here, best first: by the other engine's word for it, by its words, by its spelling."""
    counterpart = DIALECTS[table.engine].counterparts.get(name.replace("_", "-"))
    if counterpart is not None and table.first(counterpart):
        return (counterpart,)
    long = [n for n in table.names if n.startswith("--")]
    whole = _with_all_words(name, long)
    return tuple(whole or difflib.get_close_matches(name.replace("_", "-"), long, n=2, cutoff=0.75))


def _with_all_words(name: str, long: list[str]) -> list[str]:
    """--draft-model-path is no misspelling of --model-path: it is --speculative-draft-model-path cut short."""
    words = set(name.strip("-").replace("_", "-").split("-"))
    whole = [n for n in long if words <= set(n.strip("-").split("-"))]
    return sorted(whole, key=len)[:2] if len(words) > 1 else []


def _engine(table: FlagTable) -> str:
    return f"{'SGLang' if table.engine == 'sglang' else 'vLLM'} {table.version or ''}".rstrip()


def _help(table: FlagTable) -> str:
    return "python -m sglang.launch_server --help" if table.engine == "sglang" else "vllm serve --help=all"


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD701",
        name="flag-unknown-to-version",
        severity="error",
        category="launch",
        asks="does the installed engine know every option?",
    ),
    evaluate=evaluate,
)
