"""Faults of drafters, as each of the three commands can see them.

check: real safetensors files of a target and a drafter with one thing changed. measure: what real servers answered and counted
(tests/drafter/recorded), served again, and log lines with acceptances that were published. replay: texts of a real loop of
drafting and verifying with a drafter that was trained for its target, by a server that does one thing wrong.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gpudiag.drafter import texts
from gpudiag.drafter.train import train
from gpudiag.model.replay import Text
from tests.doctor import checkpoints
from tests.doctor.checkpoints import HIDDEN, IDS, ROWS, VOCABULARY, plain, truths, weights
from tests.drafter import tiny
from tests.drafter.conftest import quiet
from tests.drafter.replayed import Script, chain_vllm, plain_sglang, serving
from tests.drafter.replayed import sglang as sglang_that_drafts
from tests.drafter.test_check import CONSISTENT, FC_NORMS, Make, changed, sglang, speculators, vllm
from tests.faults.case import Culprit, Fault, Staged, Variation
from tests.programs.harness import torch_python

Engine = Literal["sglang", "vllm"]


def check(
    name: str,
    code: str | None,
    planted: str,
    make: Make,
    engine: Engine,
    *,
    algorithm: str | None = None,
    target: Mapping[str, Any] | None = None,
    **culprit: Any,
) -> Fault:
    """`gpudiag drafter check` of a pair of directories, with no engine to ask."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        # vLLM guesses the method from the path, so the path says it, as it does in every directory of a hub.
        draft = make(vary.directory / "a-target-eagle3")
        model = checkpoints.target(vary.directory / "target", **(target or {}))
        asked = ("--algorithm", algorithm) if algorithm else ()
        yield Staged(("drafter", "check", str(draft), "--target", str(model), "--engine", engine, *asked), Culprit(**culprit))

    return Fault(name=f"check-{engine}-{name}", planted=planted, code=code, ground="drafter", stage=stage)


def measure(name: str, code: str | None, planted: str, script: Callable[[], Script], **culprit: Any) -> Fault:
    """`gpudiag drafter measure` of a server that answers what a real one did."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        with serving(script()) as server:
            yield Staged(("drafter", "measure", server.url, "-n", str(vary.rng.randint(16, 24))), Culprit(**culprit))

    return Fault(name=f"measure-{name}", planted=planted, code=code, ground="drafter", stage=stage)


def logged(name: str, code: str | None, planted: str, *survival: float, **culprit: Any) -> Fault:
    """`gpudiag drafter measure --log` with these shares accepted by position, in the line that vLLM 0.24 to 0.33 log of it."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        rounds, steps = vary.rng.randint(1200, 4000), len(survival)
        accepted = round(rounds * sum(survival))
        log = vary.directory / "server.log"
        log.write_text(
            "(APIServer pid=1700) INFO 11-29 19:27:37 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: "
            f"{1 + sum(survival):.2f}, Accepted throughput: {accepted / 10:.2f} tokens/s, Drafted throughput: "
            f"{rounds * steps / 10:.2f} tokens/s, Accepted: {accepted} tokens, Drafted: {rounds * steps} tokens, "
            f"Per-position acceptance rate: {', '.join(f'{s:.3f}' for s in survival)}, "
            f"Avg Draft acceptance rate: {100 * sum(survival) / steps:.1f}%\n"
        )
        yield Staged(("drafter", "measure", "--log", str(log), "--steps", str(steps)), Culprit(**culprit))

    return Fault(name=f"measure-{name}", planted=planted, code=code, ground="drafter", stage=stage)


class Pair:
    """A target and a drafter that learnt on its texts, made once for all entries and runs."""

    def __init__(self) -> None:
        python = torch_python()
        assert python is not None
        self.python = python
        held = tempfile.TemporaryDirectory(prefix="gpudiag-pair-")
        atexit.register(held.cleanup)
        self.place = Path(held.name)
        self.target = tiny.target(self.place / "target")
        own = tiny.speculated(python, self.place, self.target, None, count=24, length=24, seed=5)
        self.draft = Path(
            train(tiny.plan(self.target, self.place / "trained"), own, python=python, progress=quiet).drafters["vllm"]
        )

    def answers(self, fault: Mapping[str, Any], seed: int) -> tuple[Text, ...]:
        """Texts of a server with this fault, with the accepted drafts of every round."""
        return tiny.speculated(
            self.python, self.place, self.target, self.draft, count=16, length=30, seed=seed, fault=dict(fault)
        )


@cache
def pair() -> Pair:
    return Pair()


def replay(name: str, code: str | None, planted: str, fault: Mapping[str, Any]) -> Fault:
    """`gpudiag drafter replay` of saved answers."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        made = pair()
        kept = vary.directory / "answers.jsonl"
        kept.write_text("".join(texts.lines(made.answers(fault, vary.rng.randrange(1 << 20)))))
        words = ("--target", str(made.target), "--python", made.python, "--device", "cpu")
        yield Staged(("drafter", "replay", str(made.draft), str(kept), *words), Culprit())

    return Fault(name=f"replay-{name}", planted=planted, code=code, ground="drafter", stage=stage, needs="torch")


def fits(name: str, case: str) -> Fault:
    """A pair that fits, of those that the tests of the check hold."""
    make, engine, target = CONSISTENT[case]
    assert engine in ("sglang", "vllm")
    return check(name, None, case, make, engine, target=target)


FAULTS = (
    check(
        "output-layers",
        "GPD602",
        "layers by their output, where the engine takes them by their input",
        vllm(eagle_config={IDS: [1, 29, 57]}, eagle_aux_hidden_state_layer_ids=None),
        "vllm",
        says="1, 29, 57",
    ),
    check(
        "input-layers",
        "GPD602",
        "layers by their input, where the engine takes them by their output",
        sglang(eagle_config={IDS: [2, 30, 58]}),
        "sglang",
        says="3, 31, 59",
    ),
    check(
        "deeper-target", "GPD602", "the layers of a deeper target", sglang(eagle_config={IDS: [1, 39, 77]}), "sglang", says="61"
    ),
    check("no-map", "GPD603", "a drafter without d2t", sglang(changed({"d2t": None})), "vllm"),
    check("maps-disagree", "GPD603", "t2d lacks a token that d2t has", sglang(changed({"t2d": truths(ROWS[:-1])})), "sglang"),
    check("other-tokenizer", "GPD603", "a vocabulary of another size", sglang(vocab_size=VOCABULARY + 1), "sglang"),
    check("algorithm", "GPD604", "an EAGLE-3 drafter with the algorithm EAGLE", sglang(), "sglang", algorithm="EAGLE"),
    check("prefix", "GPD605", "a prefix before all names", sglang({f"module.{n}": t for n, t in weights().items()}), "sglang"),
    check(
        "bias",
        "GPD605",
        "a bias for which the engine has no place",
        vllm(changed({"layers.0.self_attn.q_proj.bias": plain(8)}, "layers.0")),
        "vllm",
    ),
    check("other-family", "GPD606", "made for Llama", speculators(), "vllm", target={"architecture": "Qwen3ForCausalLM"}),
    check(
        "residual",
        "GPD608",
        "trained with norm_before_residual, which SGLang does not know",
        sglang(norm_before_residual=True),
        "sglang",
    ),
    check("norms-not-on", "GPD608", "norms that no flag switches on", sglang(changed(FC_NORMS)), "sglang"),
    check("short-context", "GPD609", "512 positions", sglang(max_position_embeddings=512), "vllm", says="512"),
    check(
        "other-embedding",
        "GPD610",
        "an embedding that is not the target's",
        sglang(changed({"embed_tokens.weight": plain(VOCABULARY, HIDDEN, value=4)})),
        "vllm",
    ),
    check(
        "quantised-target",
        "GPD611",
        "a target in FP8, and nothing said of the drafter",
        sglang(),
        "sglang",
        target={"quantization_config": {"quant_method": "fp8"}},
    ),
    measure(
        "chain-of-one",
        "GPD608",
        "vLLM 0.32 with a drafter whose first draft is always right and whose later ones never are",
        lambda: chain_vllm(per_request=True),
    ),
    logged(
        "vllm-50170",
        "GPD613",
        "Llama-3.3-70B is fed the wrong layers; a log alone cannot say which",
        *(0.036, 0.0006, 0.0),
    ),
    replay("layers", "GPD602", "the server feeds other layers", {"layers": [1, 3, 4]}),
    replay("feedback", "GPD608", "the server feeds back what comes before the norm", {"feedback": True}),
    replay("embedding", "GPD610", "the server embeds drafts with another table", {"embedding": True}),
    replay("shift", "GPD614", "the server's drafter is one position behind", {"shift": 0}),
)

LOOK_ALIKES = (
    fits("own-layers", "sglang, own choice of layers"),
    fits("eagle-3.1", "sglang, EAGLE-3.1 norms"),
    fits("shared-head", "sglang, shared head of full size"),
    fits("residual", "vllm, residual before the norm"),
    fits("sglang-file", "vllm, sglang's file without layers"),
    fits("speculators", "speculators"),
    measure("plain-sglang", None, "SGLang 0.5.23 without a drafter", plain_sglang),
    measure(
        "good-sglang",
        None,
        "SGLang 0.5.17 that accepts two of three drafts, and three of three every other time",
        lambda: sglang_that_drafts((2, 3, 2, 3, 1, 3), details=True, posts=20),
    ),
    logged("vllm-50170-right", None, "Llama-3.3-70B is fed the right layers", 0.751, 0.567, 0.453),
    logged("kimi-k2.6", None, "a published drafter of Kimi-K2.6", 0.633, 0.404, 0.264),
    replay("healthy", None, "the server does nothing wrong", {}),
)
