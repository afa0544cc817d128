"""GPD605 before a start: weights of the drafter that the engine does not find, or that do not fit where it puts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, ServedBy
from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.model.install import DraftClass
from gpudiag.model.modelfiles import Tensor
from gpudiag.model.reading import Ok
from gpudiag.rules.confidence import Link
from gpudiag.rules.drafter.expected_weights import SKIPPED, Slot, family, landing, slots
from gpudiag.rules.drafter.pair import Pair, engines, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown
from gpudiag.rules.preflight.words import listing, plural

NAMES: Final = {"sglang": "SGLang", "vllm": "vLLM"}
_PREFIXES: Final = ("model.", "module.", "draft_model.", "_orig_mod.", "base_model.model.")
_ELSEWHERE: Final = ("fc_norm.", "input_norm.")
"""Weights that GPD608 judges."""
_HARMLESS: Final = ("verifier_",)
"""What trainers keep for themselves: SGLang leaves it out and misses nothing, vLLM refuses it like any other name."""
_SHOWN: Final = 12


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if not both.is_eagle3:
        return skipped("no EAGLE-3 drafter")
    if not both.drafter.tensors:
        return found(_none(both), passed(""))
    if both.drafter.config.quantization is not None:
        return unknown(f"the drafter's weights are packed ({both.drafter.config.quantization}): their names are not judged")
    chosen = engines(facts)
    made = [f for engine in chosen for f in (*_no_class(both, engine, facts), *_placed(both, engine, facts))]
    where = " and ".join(NAMES[e] for e in chosen)
    return found(made, passed(f"{plural(len(both.drafter.tensors), 'tensor')}, with the names and shapes that {where} expects"))


def loader(facts: Facts, engine: ServedBy) -> DraftClass | None:
    """The class of the installed engine that loads the drafter, if it was looked for and found."""
    install = facts.install.value if isinstance(facts.install, Ok) else None
    classes = install.draft_classes if install is not None else None
    return next((c for c in classes.value if c.engine == engine), None) if isinstance(classes, Ok) else None


def _none(both: Pair) -> Iterator[Finding]:
    yield CHECK.finding(
        f"{both.drafter.path} has no safetensors weights",
        [seen("file-system", "no *.safetensors with a tensor")],
        ("export the drafter as safetensors",),
        culprits=_culprit(both),
    )


def _no_class(both: Pair, engine: ServedBy, facts: Facts) -> Iterator[Finding]:
    """An engine that was looked into and has no class for this drafter, or that never had one for its form."""
    looked = isinstance(facts.install, Ok) and isinstance(facts.install.value.draft_classes, Ok)
    missing = looked and loader(facts, engine) is None and engine in _installed(facts)
    foreign = engine == "sglang" and both.drafter.config.speculators
    if not missing and not foreign:
        return
    names = listing(list(both.drafter.architectures)) or "no architecture"
    how = (
        "write it in SGLang's form: LlamaForCausalLMEagle3, and the fields of transformer_layer_config at the top level"
        if foreign
        else f"a newer {NAMES[engine]}, or the other engine"
    )
    yield CHECK.finding(
        f"{NAMES[engine]} has no class that loads this drafter ({names})",
        [
            seen("config-file", f"architectures {list(both.drafter.architectures)}", f"{both.drafter.path}/config.json"),
            seen("class-definition" if missing else "source-text", f"no class of that name in {engine}"),
        ],
        (how,),
        culprits=_culprit(both),
    )


def _installed(facts: Facts) -> tuple[str, ...]:
    return tuple(p.name for p in facts.environment.packages if p.origin) if facts.environment is not None else ()


def _placed(both: Pair, engine: ServedBy, facts: Facts) -> Iterator[Finding]:
    """Each tensor of the file against the places that the class has."""
    kind, places = family(both.drafter), slots(both.drafter, engine, both.target_hidden)
    lands = {t.name: landing(t.name, engine, kind) for t in both.drafter.tensors}
    tensors = {t.name: t for t in both.drafter.tensors}
    aside = _ELSEWHERE if engine == "vllm" else (*_ELSEWHERE, *_HARMLESS)
    lost = [n for n, at in lands.items() if at != SKIPPED and at not in places and not at.startswith(aside)]
    because = _because(engine, facts)
    # Both leave out a bias that their layer does not have; any other name vLLM refuses (AutoWeightsLoader, 0.32.0).
    dropped = [n for n in lost if engine == "sglang" or n.endswith(".bias")]
    for names, refused in ((dropped, False), ([n for n in lost if n not in dropped], True)):
        if names:
            yield _lost(both, engine, names, because, refused=refused)
    found_names = set(lands.values())
    bare = {landing(n.removeprefix(p), engine, kind) for n in lost for p in _PREFIXES}
    lacking = [n for n, slot in places.items() if slot.needed and n not in found_names | bare and not n.startswith(_ELSEWHERE)]
    if lacking:
        yield _lacking(both, engine, lacking, because)
    yield from _misshapen(both, engine, {n: (tensors[n], places[at]) for n, at in lands.items() if at in places}, because)


def _because(engine: ServedBy, facts: Facts) -> Link:
    """What the engine's class has, with where it lies if it was looked up."""
    one = loader(facts, engine)
    if one is None:
        return seen("source-text", f"names that the class of {engine} takes (sglang 0.5.23, vllm 0.33.0)")
    return (
        Evidence(
            source="class-definition",
            claim=f"{one.class_name} loads it",
            excerpt=f"{one.file}:{one.line}: class {one.class_name}",
        ),
    )


def _lost(both: Pair, engine: ServedBy, names: list[str], because: Link, *, refused: bool) -> Finding:
    prefix = next((p for p in _PREFIXES if all(n.startswith(p) for n in names)), None)
    what = f"{plural(len(names), 'weight')} of the drafter {'has' if len(names) == 1 else 'have'} no place in {NAMES[engine]}"
    then = "it stops with 'There is no module or parameter named'" if refused else "it leaves them out without a word"
    steps = [
        f"rename them: take off the prefix {prefix!r}" if prefix else "rename them as the class has them (midlayer.*, fc, norm)"
    ]
    if not refused and len(names) >= len(both.drafter.tensors) // 2:
        steps.append("until then it drafts with weights that were never loaded: acceptance length 1.0")
    return CHECK.finding(
        f"{what}: {then}",
        [seen("checkpoint", f"names: {listing(names, 6)}", "\n".join(names[:_SHOWN])), because],
        steps,
        culprits=_culprit(both),
    )


def _lacking(both: Pair, engine: ServedBy, names: list[str], because: Link) -> Finding:
    then = f"in {NAMES[engine]} that part is never loaded, and nothing says so"
    if names == ["lm_head.weight"] and engine == "vllm":
        then = "vLLM takes the target's, whose rows are not those of the draft vocabulary"
    return CHECK.finding(
        f"The drafter lacks {listing(names, 3)}: {then}",
        [seen("checkpoint", f"{plural(len(both.drafter.tensors), 'tensor')}, none for {listing(names, 6)}"), because],
        ("export the drafter again, with all of its layer",),
        culprits=_culprit(both),
    )


def _misshapen(both: Pair, engine: ServedBy, placed: Mapping[str, tuple[Tensor, Slot]], because: Link) -> Iterator[Finding]:
    wrong = [
        f"{name} {list(tensor.shape)}, expected {[n if n is not None else '?' for n in slot.shape]}"
        for name, (tensor, slot) in placed.items()
        if not name.endswith(("fc.weight", "lm_head.weight")) and not _fits(tensor.shape, slot.shape)
    ]
    if wrong:
        yield CHECK.finding(
            f"{plural(len(wrong), 'weight')} of the drafter {'has' if len(wrong) == 1 else 'have'} another shape "
            f"than config.json says: {NAMES[engine]} stops, or takes the first part of each without a word",
            [seen("checkpoint", listing(wrong, 2), "\n".join(wrong[:_SHOWN])), because],
            ("take config.json and weights from the same export",),
            culprits=_culprit(both),
        )


def _fits(has: tuple[int, ...], wants: tuple[int | None, ...]) -> bool:
    return len(has) == len(wants) and all(w is None or h == w for h, w in zip(has, wants, strict=True))


def _culprit(both: Pair) -> tuple[Culprit, ...]:
    return (Culprit(node=f"file:{both.drafter.path}", path=both.drafter.path),)


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD605",
        name="drafter-weights-dropped",
        severity="error",
        category="drafter",
        asks="will the engine find all of the drafter's weights?",
    ),
    evaluate=evaluate,
)
