"""GPD608 before a start: norms or feedback that the drafter was trained with and the engine will not compute, or the reverse.

What a drafter's step hands to the next one is its hidden state before or after the last norm (norm_output), of a layer that
keeps its residual before or after the norm (norm_before_residual); fc_norm and norm_before_fc normalise what comes from the
target. A flag that an engine does not read, or reads elsewhere, changes all that and no log says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, ServedBy
from gpudiag.model.finding import Culprit, Evidence, Finding, Severity
from gpudiag.rules.confidence import Link
from gpudiag.rules.drafter.pair import Pair, engines, pair
from gpudiag.rules.drafter.weights_dropped import NAMES, loader
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import listing

_READ: Final[dict[ServedBy, frozenset[str]]] = {
    "sglang": frozenset({"norm_output", "fc_norm", "use_aux_norm", "norm_before_fc"}),
    "vllm": frozenset({"norm_output", "fc_norm", "norm_before_fc", "norm_before_residual"}),
}
"""Flags that the classes of sglang 0.5.23 and vllm 0.32 read, for when the installed one was not looked at."""
_OWN: Final = ("norm_output", "norm_before_residual", "fc_norm", "norm_before_fc")
_READ_NESTED: Final = frozenset({"norm_before_fc"})
"""Flags that both engines look for under eagle_config as well."""
_NORMS: Final = {"fc_norm": ("fc_norm.", "aux_norm_low", "aux_norm_mid", "aux_norm_high"), "norm_before_fc": ("input_norm.",)}


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if not both.is_eagle3:
        return skipped("no EAGLE-3 drafter")
    chosen = engines(facts)
    made = [f for engine in chosen for f in (*_unread(both, engine, facts), *_nested(both, engine, facts))]
    made += [*_norms(both, chosen), *_absent(both, chosen), *_trainer(both)]
    set_flags = [
        name
        for name in ("norm_output", "norm_before_residual", "fc_norm", "norm_before_fc")
        if getattr(both.drafter.config, name)
    ]
    return found(made, passed(f"feeds back its state {_fed_back(both)}; set: {', '.join(set_flags) or 'nothing'}"))


def _fed_back(both: Pair) -> str:
    return "after the norm" if both.drafter.config.norm_output else "before the norm"


def reads(facts: Facts, engine: ServedBy) -> tuple[frozenset[str], Link]:
    """The flags that the engine's class reads, and how that is known."""
    one = loader(facts, engine)
    if one is None:
        return _READ[engine], seen("source-text", f"flags that {NAMES[engine]} reads: {', '.join(sorted(_READ[engine]))}")
    said = f"{one.class_name} reads {', '.join(one.flags) or 'no flag'}"
    return frozenset(one.flags), (Evidence(source="class-definition", claim=said, excerpt=f"{one.file}:{one.line}"),)


def _unread(both: Pair, engine: ServedBy, facts: Facts) -> Iterator[Finding]:
    """A flag that is on, and that the class knows nothing of."""
    known, because = reads(facts, engine)
    config = both.drafter.config
    if engine == "sglang" and config.speculators:
        # It does not load this form at all: GPD605.
        return
    for flag in ("norm_output", "norm_before_residual", "norm_before_fc"):
        if getattr(config, flag) and flag not in known:
            yield _make(
                both,
                f"The drafter was trained with {flag}, which {NAMES[engine]} does not know: it computes another network",
                [seen("config-file", f"{flag} is true", f"{both.drafter.path}/config.json"), because],
                (f"serve it with an engine that reads {flag} (vLLM 0.32 reads norm_before_residual)", "or train it without"),
            )
    if config.fc_norm and not known & {"fc_norm", "use_aux_norm"}:
        yield _make(
            both,
            f"The drafter was trained with fc_norm, which {NAMES[engine]} here does not know: the states go into fc as they are",
            [seen("config-file", "fc_norm is true", f"{both.drafter.path}/config.json"), because],
            (f"a newer {engine}, which has EAGLE-3.1",),
        )


def _nested(both: Pair, engine: ServedBy, facts: Facts) -> Iterator[Finding]:
    """A flag that is on, but stands where the engine does not look for it."""
    config = both.drafter.config
    known, because = reads(facts, engine)
    values = {"norm_output": config.norm_output, "fc_norm": config.fc_norm, "use_aux_norm": config.fc_norm}
    values["norm_before_residual"] = config.norm_before_residual
    hidden = [f for f in config.nested_flags if f not in _READ_NESTED and f in known and values.get(f)]
    if hidden:
        yield _make(
            both,
            f"{listing(hidden)} stands under eagle_config, where {NAMES[engine]} does not look: it serves as if it were false",
            [seen("config-file", f"eagle_config has {', '.join(hidden)}, the top level has not"), because],
            (f"write {listing(hidden)} at the top level of {both.drafter.path}/config.json",),
        )


_LEFT_OUT: Final = {
    ("sglang", "fc_norm"): "SGLang leaves the norm out without a word",
    ("sglang", "norm_before_fc"): "SGLang leaves the norm out without a word",
    ("vllm", "fc_norm"): "vLLM refuses the file",
    ("vllm", "norm_before_fc"): "vLLM leaves the norm out without a word",
}
"""What each engine does with weights of a norm that is not switched on (run with sglang 0.5.23 and vllm 0.32.0)."""


def _norms(both: Pair, chosen: Sequence[ServedBy]) -> Iterator[Finding]:
    """Norms in front of fc: weights without the flag that makes a place for them, and the flag without weights."""
    config, names = both.drafter.config, [t.name for t in both.drafter.tensors]
    for flag, marks in _NORMS.items():
        own = [n for n in names if n.startswith(marks) or n.removeprefix("model.").startswith(marks)]
        then = "; ".join(_LEFT_OUT[engine, flag] for engine in chosen)
        if own and not getattr(config, flag):
            yield _make(
                both,
                f"The file has weights of {flag} and config.json does not switch it on: {then}",
                [seen("checkpoint", f"{len(own)} tensors: {listing(own, 3)}"), seen("config-file", f"no {flag}: true")],
                (f'put "{flag}": true at the top level of {both.drafter.path}/config.json',),
            )
        if names and getattr(config, flag) and not own:
            yield _make(
                both,
                f"config.json switches {flag} on and the file has no weights for it: the norm multiplies by ones",
                [seen("config-file", f"{flag} is true"), seen("checkpoint", f"no tensor {marks[0]}*")],
                (f"export the drafter again with its norms, or take {flag} out if it was trained without",),
            )


def _absent(both: Pair, chosen: Sequence[ServedBy]) -> Iterator[Finding]:
    """Two defaults for one flag: vLLM's reader of speculators files takes True, the class of all other files False."""
    config = both.drafter.config
    if config.speculators and config.norm_before_residual is None and "vllm" in chosen:
        yield _make(
            both,
            "config.json does not say norm_before_residual: vLLM takes true in this form, and false in every other",
            [
                seen("config-file", "speculators_config without norm_before_residual"),
                seen("source-text", "transformers_utils/configs/speculators/algos.py of vllm 0.32 and 0.33: get(..., True)"),
            ],
            ("write norm_before_residual as it was in training",),
            severity="warning",
        )


def _trainer(both: Pair) -> Iterator[Finding]:
    """One name for two things: SpecForge's norm_output is a norm before lm_head, the engines' is what is fed back."""
    config = both.drafter.config
    elsewhere = "LlamaForCausalLMEagle3" not in both.drafter.architectures or "norm_output" in config.nested_flags
    if not config.norm_output or elsewhere:
        return
    yield _make(
        both,
        "norm_output is on: right if the drafter learnt from states after the norm; SpecForge 0.2 trains on those before it",
        [
            seen("config-file", "norm_output is true in a LlamaForCausalLMEagle3, which is what SpecForge makes"),
            seen("source-text", "SpecForge 0.2.0 modeling/draft/llama3_eagle.py: norm_output normalises for lm_head alone"),
        ],
        (
            "if SpecForge 0.2 trained it, set norm_output to false: the first draft keeps its acceptance, the later ones gain",
            "gpudiag drafter replay compares both",
        ),
        severity="info",
    )


def _make(both: Pair, title: str, links: Sequence[Link], steps: Sequence[str], severity: Severity | None = None) -> Finding:
    path = f"{both.drafter.path}/config.json"
    return CHECK.finding(title, links, steps, culprits=(Culprit(node=f"file:{path}", path=path),), severity=severity)


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD608",
        name="drafter-feedback-mismatch",
        severity="error",
        category="drafter",
        asks="will the engine normalise and feed back as the drafter was trained?",
    ),
    evaluate=evaluate,
)
