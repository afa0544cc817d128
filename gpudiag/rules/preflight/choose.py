"""Both engines side by side for one model and drafter: does it work, how is it started, with which kernels, what is slow."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckResult, Choice
from gpudiag.model.facts import Facts, ServedBy
from gpudiag.model.install import Distribution, Eagle3Interface, Install
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.rules.drafter.aux_layers import learned
from gpudiag.rules.drafter.feeding import feedings
from gpudiag.rules.drafter.pair import Pair, pair
from gpudiag.rules.kernels.backends import backend
from gpudiag.rules.kernels.runs_on import Way, capability_name, coverage, parse_capability
from gpudiag.rules.preflight.words import listing
from gpudiag.rules.system.gpus import capabilities

_ENGINES: Final[tuple[ServedBy, ...]] = ("sglang", "vllm")
_WAYS: Final[dict[Way, str]] = {"native": "native", "jit": "compiled at first use", "none": "no code"}
_BROKEN_PEERS: Final = frozenset({"GPD110", "GPD111", "GPD403"})


def choices(facts: Facts, results: tuple[CheckResult, ...]) -> tuple[Choice, ...]:
    """One choice for each engine; none unless a model and a drafter were named and no engine was."""
    if facts.asked.engine is not None or not isinstance(facts.model, Ok) or not isinstance(facts.drafter, Ok):
        return ()
    peers = any(r.status == "finding" and r.info.code in _BROKEN_PEERS for r in results)
    return tuple(_choice(engine, facts, peers) for engine in _ENGINES)


def _choice(engine: ServedBy, facts: Facts, broken_peers: bool) -> Choice:
    install, distribution = _installed(engine, facts)
    supported, why = _supported(engine, install, facts)
    return Choice(
        engine=engine,
        version=distribution.version if distribution else None,
        supported=supported,
        why=why,
        command=command(engine, facts, broken_peers),
        kernels=tuple(_kernels(engine, facts)),
        slow=tuple(_slow(engine, facts, broken_peers)),
    )


def _installed(engine: str, facts: Facts) -> tuple[Install | None, Distribution | None]:
    every = [*([facts.install.value] if isinstance(facts.install, Ok) else []), *facts.others]
    for one in every:
        if isinstance(one.environment, Ok) and (p := one.environment.value.package(engine)) is not None and p.origin:
            return one, one.environment.value.distribution(engine)
    return None, None


def _supported(engine: str, install: Install | None, facts: Facts) -> tuple[bool | None, str]:
    if install is None:
        return None, f"not installed in any interpreter that was looked at: add --python for one that has {engine}"
    if not isinstance(install.eagle3, Ok):
        return None, _reason(install.eagle3)
    one = next((i for i in install.eagle3.value if i.engine == engine), None)
    if one is None:
        architecture = facts.model.value.config.architectures[:1] if isinstance(facts.model, Ok) else ()
        return False, f"has no class for {', '.join(architecture) or 'this model'}"
    return _by_interface(one)


def _reason(reading: Unavailable | Failed) -> str:
    return reading.reason if isinstance(reading, Unavailable) else reading.error


def _by_interface(one: Eagle3Interface) -> tuple[bool | None, str]:
    if not one.missing:
        return True, f"{one.class_name} takes an EAGLE-3 drafter"
    if one.unresolved:
        return None, f"{one.class_name} itself lacks EAGLE-3's interface; not known: {listing(list(one.unresolved), 2)}"
    return False, f"{one.class_name} lacks EAGLE-3's interface" + (
        f", {listing(list(one.wrapped), 2)} inside it has it" if one.wrapped else ""
    )


def command(engine: ServedBy, facts: Facts, broken_peers: bool) -> str:
    """A command line with what this pair needs: chains of three drafts, which every model and backend can do."""
    model, draft = facts.asked.model or "MODEL", facts.asked.draft or "DRAFT"
    quantised = isinstance(facts.model, Ok) and facts.model.value.config.quantization is not None
    if engine == "vllm":
        speculative = json.dumps({"method": "eagle3", "model": draft, "num_speculative_tokens": 3})
        words = ["vllm", "serve", model, "--speculative-config", speculative]
        tp = "--tensor-parallel-size"
    else:
        words = ["python", "-m", "sglang.launch_server", "--model-path", model, "--speculative-algorithm", "EAGLE3"]
        words += ["--speculative-draft-model-path", draft, "--speculative-num-steps", "3"]
        words += ["--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"]
        words += ["--speculative-draft-model-quantization", "unquant"] if quantised else []
        tp = "--tp"
    words += [tp, str(facts.asked.tp)] if facts.asked.tp > 1 else []
    words += ["--disable-custom-all-reduce"] if broken_peers and facts.asked.tp > 1 else []
    return shlex.join(words)


def _kernels(engine: str, facts: Facts) -> Iterator[str]:
    wanted = [c for c in map(parse_capability, capabilities(facts)) if c is not None]
    marker = {"sglang": "/sgl_kernel/", "vllm": "/vllm/"}[engine]
    for library in facts.libraries.value if isinstance(facts.libraries, Ok) else ():
        known = backend(library.path)
        if marker not in library.path or known is None:
            continue
        for capability in wanted:
            way = coverage(library, capability).way
            instead = f"; instead: {known.instead}" if way == "none" else ""
            yield f"{known.role}: {_WAYS[way]} on {capability_name(capability)}{instead}"


def _slow(engine: ServedBy, facts: Facts, broken_peers: bool) -> Iterator[str]:
    both = pair(facts)
    if isinstance(both, Pair) and both.target is not None and both.target.layers is not None:
        trained = learned(both.drafter, both.target.layers).layers
        for one in feedings(facts, both, engine):
            if one.layers != trained:
                fed = ", ".join(map(str, one.layers))
                yield f"{one.name} feeds layers {fed}; the drafter was trained on {', '.join(map(str, trained))}"
    if broken_peers and facts.asked.tp > 1:
        yield "no custom all-reduce: peer access between these GPUs is in doubt"
