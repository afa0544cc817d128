"""Faults of a machine, an install or a drafter, found by `gpudiag doctor` before anything serves.

Machines: what doctor read of two H200s, with one thing changed. Installs: a real environment that is broken. Drafters: real
safetensors files. Each is written as facts and judged with --from-facts.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gpudiag.doctor import drafter_files, facts, model_files
from gpudiag.model.facts import Asked, Facts, Gpu
from gpudiag.model.reading import Ok
from tests.doctor.checkpoints import ROWS, drafter, integers, target, weights
from tests.doctor.machines import behind_iommu, ok
from tests.doctor.machines import facts as made_machine
from tests.doctor.site import Site, make
from tests.doctor.test_install import CLEAN, MODEL, phantom
from tests.faults.case import Culprit, Fault, Ground, Staged, Variation

RECORDED = Path(__file__).parents[1] / "doctor" / "recordings" / "two-h200.json.gz"
Make = Callable[[Path], Facts]


def doctor(name: str, code: str | None, planted: str, given: Make, ground: Ground = "machine", **culprit: Any) -> Fault:
    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        path = vary.directory / "facts.json"
        path.write_bytes(msgspec.json.encode(given(vary.directory)))
        yield Staged(("doctor", "--from-facts", str(path)), Culprit(**culprit))

    return Fault(name=f"doctor-{name}", planted=planted, code=code, ground=ground, stage=stage)


def recorded() -> Facts:
    return msgspec.json.decode(gzip.decompress(RECORDED.read_bytes()), type=Facts)


def second_gpu(**changes: object) -> Make:
    """The recorded machine with its second GPU changed."""

    def given(_: Path) -> Facts:
        machine = recorded()
        gpus = machine.system.gpus
        assert isinstance(gpus, Ok)
        first, second = gpus.value.gpus
        changed: Gpu = replace(second, **changes)
        value = replace(gpus.value, gpus=(first, changed))
        return replace(machine, system=replace(machine.system, gpus=replace(gpus, value=value)))

    return given


def failing(test: str, outcome: str) -> Make:
    """The recorded machine with one of the tests on its GPUs ending otherwise."""

    def given(_: Path) -> Facts:
        machine = recorded()
        assert isinstance(machine.active, Ok)
        tests = tuple(replace(t, outcome=outcome) if t.test == test else t for t in machine.active.value)
        return replace(machine, active=replace(machine.active, value=tests))

    return given


def made(asked: Asked | None = None, **changes: Any) -> Make:
    return lambda _: made_machine(asked, **changes)


def install(breaks: Callable[[Site, Path], None], **asked: Any) -> Make:
    """A real environment with a small package called vllm in it, as `breaks` leaves it."""

    def given(directory: Path) -> Facts:
        site = make(directory / "venv")
        site.install("vllm", "0.33.0", CLEAN)
        breaks(site, directory)
        found = facts.read(Asked(python=site.python, depth="fast", **asked))
        return replace(made_machine(), asked=found.asked, install=found.install)

    return given


def import_left_open(site: Site, _: Path) -> None:
    (site.packages / MODEL).write_text("from vllm.base import (\n    Base,\n\n\nclass Kimi(Base):\n    pass\n")


def file_removed(site: Site, _: Path) -> None:
    (site.packages / "vllm/base.py").unlink()


def built_elsewhere(site: Site, directory: Path) -> None:
    phantom(site, directory / "tree")


def nothing(_site: Site, _directory: Path) -> None:
    pass


def pair(algorithm: str = "EAGLE3", drop: str | None = None, tensors: Any = None, **config: Any) -> Make:
    """A target and an EAGLE-3 drafter for SGLang."""

    def given(directory: Path) -> Facts:
        model = target(directory / "model")
        kept = {n: t for n, t in {**weights(), **(tensors or {})}.items() if n != drop}
        draft = drafter(directory / "eagle3", kept, **config)
        asked = Asked(engine="sglang", model=str(model), draft=str(draft), algorithm=algorithm)
        return made_machine(asked, model=ok(model_files.model(model)), drafter=ok(drafter_files.drafter(draft, model)))

    return given


def at(value: object) -> Ok[Any]:
    return Ok(value=value, at=0.0)


FAULTS = (
    doctor("nvlink-down", "GPD404", "one NVLink of GPU 1 is down", second_gpu(nvlinks=at((True,) * 17 + (False,)))),
    doctor("ecc", "GPD502", "three uncorrectable errors on GPU 1", second_gpu(ecc_uncorrected=at(3))),
    doctor("peer-copy", "GPD403", "copies between the GPUs come out wrong", failing("peer_copy", "wrong-data")),
    doctor("all-reduce-hangs", "GPD219", "the all-reduce of doctor --active hangs", failing("all_reduce", "hung")),
    doctor("vllm-33041", "GPD110", "two GPUs reach each other through an IOMMU that translates", made(**behind_iommu())),
    doctor(
        "hami-2641", "GPD125", "libvgpu.so is preloaded", made(environment={"LD_PRELOAD": "/usr/lib/libvgpu.so"}), says="libvgpu"
    ),
    doctor("syntax-error", "GPD106", "an import in a model file is not closed", install(import_left_open), file=MODEL),
    doctor("file-removed", "GPD134", "a file of the engine is gone", install(file_removed), says="base.py"),
    doctor("phantom-build", "GPD104", "an editable build puts the library where it is not loaded", install(built_elsewhere)),
    doctor("sglang-21272", "GPD604", "an EAGLE-3 drafter with the algorithm EAGLE", pair("EAGLE")),
    doctor("absolute-ids", "GPD603", "d2t holds ids instead of offsets", pair(tensors={"d2t": integers(list(ROWS))})),
    doctor("fc-missing", "GPD605", "a drafter without fc.weight", pair(drop="fc.weight")),
)

LOOK_ALIKES = (
    doctor("two-h200", None, "two sound H200s, every test on them passed", lambda _: recorded()),
    doctor("sound-machine", None, "a sound machine", made()),
    doctor("sound-install", None, "an environment as its packages left it", install(nothing)),
    doctor("sound-pair", None, "a target and a drafter that fit", pair()),
)
