"""Audit of hidden states: both trainers' files without torch, each fault by its file, and nothing of a pickle is run."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudiag.cli import main
from gpudiag.drafter import audit_states
from gpudiag.drafter.audit_states import Expected
from gpudiag.drafter.state_files import StateFile
from gpudiag.drafter.state_numbers import not_finite, numbers
from tests.doctor import checkpoints
from tests.doctor.checkpoints import HIDDEN, VOCABULARY, Tensors, integers, save

TOKENS, LAYERS = 5, 4
Write = Callable[..., Path]
EXPECTED = Expected(hidden_size=HIDDEN, vocab_size=VOCABULARY, layers=LAYERS)


def bf16(*values: float) -> bytes:
    return b"".join(struct.pack("<f", one)[2:] for one in values)


def states(tokens: int = TOKENS, layers: int = LAYERS, width: int = HIDDEN) -> list[float]:
    """Numbers that differ from layer to layer, [tokens, layers, width]."""
    return [1 + layer + token / 8 for token in range(tokens) for layer in range(layers) for _ in range(width)]


def saved(
    place: Path, values: list[float] | None = None, shape: tuple[int, ...] = (TOKENS, LAYERS, HIDDEN), **other: Any
) -> Path:
    """A file as speculators and vLLM write it."""
    tensors: Tensors = {
        "token_ids": integers(list(range(TOKENS))),
        "hidden_states": ("BF16", shape or (TOKENS, LAYERS, HIDDEN), bf16(*(states() if values is None else values))),
        **other,
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    save(place, tensors)
    return place


def counted(directory: Path, expected: Expected = EXPECTED) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {item.name: (item.count, item.places) for item in audit_states.run(directory, expected).items}


def with_one(place: int, value: float) -> list[float]:
    values = states()
    values[place] = value
    return values


FAULTS: dict[str, Callable[[Path], Path]] = {
    "not finite": lambda p: saved(p, with_one(7, float("nan"))),
    "other length": lambda p: saved(p, token_ids=integers([1, 2])),
    "other width": lambda p: saved(p, shape=(TOKENS, LAYERS, HIDDEN // 2), values=states(width=HIDDEN // 2)),
    "other layers": lambda p: saved(p, shape=(TOKENS, 3, HIDDEN), values=states(layers=3)),
    "other tokens": lambda p: saved(p, token_ids=integers([1, 2, 3, 4, VOCABULARY])),
    "same layers": lambda p: saved(p, [1.0 if 1 <= i // HIDDEN % LAYERS <= 2 else one for i, one in enumerate(states())]),
    "all zero": lambda p: saved(p, [0.0 if i // HIDDEN % LAYERS == 1 else one for i, one in enumerate(states())]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_by_its_file(tmp_path: Path, name: str) -> None:
    for i in range(3):
        saved(tmp_path / f"hs_{i}.safetensors")
    FAULTS[name](tmp_path / "hs_9.safetensors")
    found = counted(tmp_path)
    assert found.pop("mixed forms", (1, ())) == (1, ())
    assert found == {name: (1, ("hs_9.safetensors",))}


def test_good_states_their_size_and_how_far_they_are(tmp_path: Path) -> None:
    for i in range(3):
        os.utime(saved(tmp_path / f"rows_{i}" / "hs.safetensors"), (1000 + 10 * i, 1000 + 10 * i))
    one = audit_states.run(tmp_path, Expected(hidden_size=HIDDEN, layers=LAYERS, tokens=30))
    facts = {fact.name: fact.value for fact in one.facts}
    assert (one.items, one.rows) == ((), 3)
    assert facts["states"] == f"4 layers of {HIDDEN} numbers, BF16, in 3 files"
    assert facts["size by layer"].startswith("1.26, 2.26, 3.25, 4.25")
    # 15 tokens within 20 seconds, 15 to go.
    assert facts["progress"].startswith("50% of 30 tokens; 1 a second")


@pytest.mark.parametrize("cut", [3, 60, -1])
def test_a_file_that_is_cut_off(tmp_path: Path, cut: int) -> None:
    file = saved(tmp_path / "hs_0.safetensors")
    file.write_bytes(file.read_bytes()[:cut])
    assert set(counted(tmp_path)) == {"unreadable"}


@pytest.mark.parametrize(
    ("dtype", "width", "patterns", "expected"),
    [
        ("BF16", 2, [0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0xFF7F, 0x3F80, 0], 3),
        ("F16", 2, [0x7C00, 0xFC00, 0x7E01, 0x7BFF, 0x3C00, 0], 3),
        ("F32", 4, [0x7F800000, 0xFF800001, 0x7F7FFFFF, 0x3F800000, 0], 2),
        ("F64", 8, [0x7FF0 << 48, 0xFFF8 << 48, 0x7FEF << 48, 0x3FF0 << 48], 2),
    ],
)
def test_infinite_numbers_and_none(dtype: str, width: int, patterns: list[int], expected: int) -> None:
    """By the bit patterns of IEEE 754, the largest finite numbers among them."""
    data = b"".join(p.to_bytes(width, "little") for p in patterns)
    assert not_finite([data, data], dtype) == 2 * expected


def test_numbers_are_what_they_are() -> None:
    assert list(numbers(bf16(1.0, -2.5, 0.0, 96.0), "BF16")) == [1.0, -2.5, 0.0, 96.0]
    assert list(numbers(struct.pack("<2e", 1.5, -3.0), "F16")) == [1.5, -3.0]
    assert list(numbers(struct.pack("<2f", 1.5, -3.0), "F32")) == [1.5, -3.0]


class _Rebuilt:
    """Pickles as torch's tensors do: a call of torch._utils._rebuild_tensor_v2 with a storage outside the pickle."""

    def __init__(self, kind: type, key: str, shape: tuple[int, ...], stride: tuple[int, ...], rebuild: Any) -> None:
        self.kind, self.key, self.shape, self.stride, self.rebuild = kind, key, shape, stride, rebuild

    def __reduce__(self) -> Any:
        return self.rebuild, (_Storage(self.kind, self.key), 0, self.shape, self.stride, False, {})


class _Storage:
    def __init__(self, kind: type, key: str) -> None:
        self.kind, self.key = kind, key


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return ("storage", obj.kind, obj.key, "cpu", 0) if isinstance(obj, _Storage) else None


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    step = 1
    for n in reversed(shape):
        found.insert(0, step)
        step *= n
    return tuple(found)


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file as torch.save does, without torch."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    kinds = {name: type(name, (), {"__module__": "torch"}) for name in ("BFloat16Storage", "LongStorage")}
    for name, kind in kinds.items():
        setattr(torch, name, kind)
    exec("def _rebuild_tensor_v2(*a):\n    raise AssertionError('run')", utils.__dict__)  # noqa: S102  a function of that module
    utils._rebuild_tensor_v2.__module__ = "torch._utils"
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)

    def write(place: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]], **extra: Any) -> Path:
        held: dict[str, Any] = {
            name: _Rebuilt(kinds[kind], str(i), shape, strides(shape), utils._rebuild_tensor_v2)
            for i, (name, (kind, shape, _)) in enumerate(tensors.items())
        }
        out = io.BytesIO()
        _Pickler(out, protocol=2).dump({**held, **extra})
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("data/data.pkl", out.getvalue())
            for i, (_, _, data) in enumerate(tensors.values()):
                archive.writestr(f"data/data/{i}", data)
        return place

    return write


def specforge(**changes: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    aux = [1 + i // HIDDEN % 3 for i in range(TOKENS * 3 * HIDDEN)]
    return {
        "input_ids": ("LongStorage", (TOKENS,), struct.pack(f"<{TOKENS}q", *range(TOKENS))),
        "hidden_state": ("BFloat16Storage", (1, TOKENS, HIDDEN), bf16(*[9.0] * TOKENS * HIDDEN)),
        "aux_hidden_state": ("BFloat16Storage", (1, TOKENS, 3 * HIDDEN), bf16(*aux)),
        **changes,
    }


def test_specforges_checkpoints(tmp_path: Path, checkpoint: Write) -> None:
    checkpoint(tmp_path / "data_0.ckpt", specforge())
    one = audit_states.run(tmp_path, EXPECTED)
    facts = {fact.name: fact.value for fact in one.facts}
    assert (one.items, facts["size by layer"].partition(" (")[0]) == ((), "1, 2, 3, 9")
    broken = [1.0] * (TOKENS * HIDDEN - 1) + [float("inf")]
    checkpoint(tmp_path / "data_1.ckpt", specforge(hidden_state=("BFloat16Storage", (1, TOKENS, HIDDEN), bf16(*broken))))
    assert counted(tmp_path) == {"not finite": (1, ("data_1.ckpt",))}


class _Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, ("trap",)


def test_nothing_of_a_pickle_is_run(tmp_path: Path, checkpoint: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "states").mkdir()
    checkpoint(tmp_path / "states" / "data_0.ckpt", specforge(), extra=_Trap())
    assert counted(tmp_path / "states") == {}
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize("shape", [(1, TOKENS + 1, HIDDEN), (1, 1 << 40, HIDDEN), (-1,)])
def test_a_checkpoint_that_promises_more_than_it_has(tmp_path: Path, checkpoint: Write, shape: tuple[int, ...]) -> None:
    checkpoint(tmp_path / "data_0.ckpt", specforge(hidden_state=("BFloat16Storage", shape, b"\0" * (TOKENS * HIDDEN * 2))))
    assert set(counted(tmp_path)) == {"unreadable"}


def test_a_checkpoint_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.ckpt").write_bytes(b"PK\x03\x04" + b"\0" * 50)
    with zipfile.ZipFile(tmp_path / "b.ckpt", "w") as archive:
        archive.writestr("x/data.pkl", b"\x80\x02.")
    with pytest.raises(ValueError, match="cut off, or no checkpoint"):
        StateFile(tmp_path / "a.ckpt")
    assert counted(tmp_path)["unreadable"][0] == 2


def test_the_command_and_its_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(checkpoints.target(tmp_path / "target"))
    saved(tmp_path / "states" / "hs_0.safetensors")
    assert main.run(["drafter", "audit-states", str(tmp_path / "states"), "--target", target, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["kind"], told["items"]) == ("gpudiag.audit/1", "states", [])
    FAULTS["not finite"](tmp_path / "states" / "hs_1.safetensors")
    assert main.run(["drafter", "audit-states", str(tmp_path / "states"), "--target", target]) == 1
    assert "file hs_1.safetensors" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert main.run(["drafter", "audit-states", str(tmp_path / "empty")]) == 2
    assert main.run(["drafter", "audit-states", str(tmp_path / "nowhere")]) == 2


def test_files_without_any_layer_are_named(tmp_path: Path) -> None:
    saved(tmp_path / "a.safetensors", [], (TOKENS, 0, HIDDEN))
    aux = {
        "hidden_states": ("BF16", (0,), b""),
        "hidden_state": ("BF16", (1, 1, 1), bf16(1)),
        "aux_hidden_state": ("BF16", (1, 1, 0), b""),
    }
    saved(tmp_path / "b.safetensors", [], (TOKENS, 0, HIDDEN), **aux)
    assert counted(tmp_path) == {"unreadable": (2, ("a.safetensors", "b.safetensors"))}


def test_a_checkpoint_whose_packing_is_damaged_is_named(tmp_path: Path) -> None:
    place = tmp_path / "a.ckpt"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(range(256)) * 9)
    data = bytearray(place.read_bytes())
    data[45:75] = b"\xff" * 30
    place.write_bytes(data)
    assert counted(tmp_path) == {"unreadable": (1, ("a.ckpt",))}


def test_a_file_that_is_gone_when_it_is_opened_costs_only_itself(tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere", tmp_path / "a.safetensors")
    saved(tmp_path / "b.safetensors")
    assert counted(tmp_path) == {"unreadable": (1, ("a.safetensors",))}
