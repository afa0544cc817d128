"""GPD123: the class that serves the model does not let an EAGLE-3 drafter read its hidden states."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.install import Eagle3Interface
from gpudiag.model.reading import NOT_ASKED
from gpudiag.rules.install.reading import part
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown
from gpudiag.rules.preflight.words import listing

_HOW: Final = {
    "sglang": "SGLang asks hasattr(model, 'set_eagle3_layers_to_capture') of the class it loads, wrapper or not",
    "vllm": "vLLM asks isinstance(model, SupportsEagle3) of the class it loads, wrapper or not",
}


def evaluate(facts: Facts) -> Answer:
    looked = part(facts, lambda install: install.eagle3)
    if isinstance(looked, Answer):
        nameless = looked.status == "skipped" and facts.asked.python is not None and facts.model == NOT_ASKED
        return skipped("no model named (--model)") if nameless else looked
    lacking = [one for one in looked if one.missing]
    unsure = [one for one in lacking if one.unresolved]
    made = [_finding(one) for one in lacking if one not in unsure]
    if unsure and not made:
        one = unsure[0]
        return unknown(
            f"{one.class_name} itself lacks {listing(list(one.missing), 2)}; not known: {listing(list(one.unresolved), 3)}",
            f"read {one.file}:{one.line}",
        )
    names = [f"{one.class_name} ({one.engine})" for one in looked]
    return found(made, passed(f"{listing(names)} has it" if names else "no class to look at"))


def _finding(one: Eagle3Interface) -> Finding:
    inner = listing(list(one.wrapped), 3)
    lacks = f"{one.class_name} does not have EAGLE-3's interface, so {one.engine} refuses the drafter"
    title = f"{lacks}, though {inner} inside it does" if one.wrapped else lacks
    steps = (
        (
            f"let the wrapper pass it on to its inner model, in {one.file}",
            f"the model served as {inner} alone, without the wrapper, takes the drafter as it is",
        )
        if one.wrapped
        else (f"serve it with the other engine, or a newer {one.engine} whose {one.class_name} has it",)
    )
    return CHECK.finding(
        title,
        [
            seen(
                "class-definition",
                f"neither {one.class_name} nor {f'its bases ({listing(list(one.bases), 6)})' if one.bases else 'a base'} defines "
                f"{listing(list(one.missing), 6)}",
                f"{one.file}:{one.line}: class {one.class_name}",
            )
        ],
        steps,
        culprits=(Culprit(node=f"file:{one.file}", file=one.file, line=one.line, function=one.class_name, path=one.file),),
        notes=seen("class-definition", _HOW.get(one.engine, "")),
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD123",
        name="eagle3-interface-missing",
        severity="error",
        category="drafter",
        asks="does the model's class in this engine take an EAGLE-3 drafter?",
    ),
    evaluate=evaluate,
)
