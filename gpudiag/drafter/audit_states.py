"""Audit of hidden states that a drafter is to be trained on: whole, finite, of the right width, for the right tokens.

Which layers they are only a fresh forward pass can say; here it is seen whether two of them are one and the same, and how
large each is.
"""

from __future__ import annotations

import os
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from gpudiag import __version__
from gpudiag.drafter import audit_kinds as kinds
from gpudiag.drafter.audit_data import Counts
from gpudiag.drafter.state_files import StateFile, Stored
from gpudiag.drafter.state_numbers import not_finite, numbers, root_mean_square
from gpudiag.model.audit import Audit, AuditFact, AuditItem
from gpudiag.model.report import NotRead
from gpudiag.rules.preflight.words import size

_LOOKED_AT: Final = 32
"""Files of which the size of the numbers is taken, the first rows of each."""
_ROWS: Final = 8
_MAX_FILES: Final = 5_000_000


class Expected(Struct, frozen=True, kw_only=True):
    """What the states should be; None where it is not known. `tokens` are those of the whole run."""

    hidden_size: int | None = None
    vocab_size: int | None = None
    layers: int | None = None
    tokens: int | None = None


class States(Struct, frozen=True, kw_only=True):
    """The tensors of one file: token ids [T], and the states as (tensor, how many layers side by side in a row)."""

    ids: Stored
    states: tuple[tuple[Stored, int], ...]

    @property
    def tokens(self) -> int:
        return max(self.ids.shape, default=0)


class StatesAudit:
    """Takes files one by one and says at the end what is to be said."""

    def __init__(self, expected: Expected) -> None:
        self.expected = expected
        self.files = 0
        self.tokens = 0
        self.bytes = 0
        self.counts = Counts()
        self.forms: Counter[tuple[str, int, int]] = Counter()
        """(type, layers, width) of the files."""
        self.sizes: list[list[float]] = []
        self.times: list[float] = []
        self._looked = 0
        self.reason = ""
        """Why the first file that could not be read could not be."""

    def take(self, path: Path) -> None:
        self.files += 1
        try:
            status = path.stat()
            self.bytes += status.st_size
            self.times.append(status.st_mtime)
            self._inside(StateFile(path), path.name)
        # OSError: whoever writes them may rename or remove one meanwhile.
        except (ValueError, OSError) as error:
            self.counts.add("unreadable", path.name)
            self.reason = self.reason or str(error)

    def _inside(self, file: StateFile, name: str) -> None:
        held = self._form(file.tensors)
        self.tokens += held.tokens
        layers = sum(count for _, count in held.states)
        width = held.states[0][0].shape[-1] // held.states[0][1]
        self.forms[held.states[0][0].dtype, layers, width] += 1
        if any(_rows(one) != held.tokens for one, _ in held.states):
            self.counts.add("other length", name)
        if self.expected.hidden_size and width != self.expected.hidden_size:
            self.counts.add("other width", name)
        if self.expected.layers and layers != self.expected.layers:
            self.counts.add("other layers", name)
        self._ids(file, held.ids, name)
        broken = sum(not_finite(file.pieces(one), one.dtype) for one, _ in held.states)
        if broken:
            self.counts.add("not finite", name)
        if self._looked < _LOOKED_AT and held.tokens and not broken:
            self._looked += 1
            self._measure(file, held, name)

    def _form(self, tensors: dict[str, Stored]) -> States:
        """The states of a file in either trainer's form. Raises ValueError if it is of neither."""
        ids = tensors.get("token_ids", tensors.get("input_ids"))
        if ids is None:
            raise ValueError("no token ids (token_ids or input_ids)")
        joined = tensors.get("hidden_states")
        if joined is not None and len(joined.shape) == 3 and joined.shape[1]:
            return States(ids=ids, states=((joined, 1),) if joined.shape[1] == 1 else ((_flat(joined), joined.shape[1]),))
        last, aux = tensors.get("hidden_state"), tensors.get("aux_hidden_state")
        if last is None or aux is None or not last.shape or not aux.shape or not last.shape[-1]:
            raise ValueError("no hidden states (hidden_states, or hidden_state and aux_hidden_state)")
        if not aux.shape[-1] or aux.shape[-1] % last.shape[-1]:
            raise ValueError(f"aux_hidden_state is {aux.shape[-1]} wide, hidden_state {last.shape[-1]}")
        return States(ids=ids, states=((aux, aux.shape[-1] // last.shape[-1]), (last, 1)))

    def _ids(self, file: StateFile, ids: Stored, name: str) -> None:
        """Token ids must be ids of the target."""
        if ids.dtype not in ("I64", "I32") or not self.expected.vocab_size:
            return
        # Piece by piece: a sparse file may claim more ids than memory holds.
        for piece in file.pieces(ids):
            found = array("q" if ids.dtype == "I64" else "i", piece)
            if min(found) < 0 or max(found) >= self.expected.vocab_size:
                self.counts.add("other tokens", name)
                return

    def _measure(self, file: StateFile, held: States, name: str) -> None:
        """The size of the numbers of each layer in the first rows, and whether two layers are the same."""
        columns: list[bytes] = []
        sizes = []
        for one, count in held.states:
            rows = min(_ROWS, held.tokens)
            row = one.size // max(1, held.tokens)
            data = b"".join(file.pieces(one, rows * row))
            part = row // count
            for layer in range(count):
                columns.append(b"".join(data[r * row + layer * part : r * row + (layer + 1) * part] for r in range(rows)))
                sizes.append(root_mean_square(numbers(columns[-1], one.dtype)))
        if len(set(columns)) < len(columns):
            self.counts.add("same layers", name)
        if any(one == 0 for one in sizes):
            self.counts.add("all zero", name)
        self.sizes.append(sizes)

    def facts(self) -> Iterator[AuditFact]:
        yield AuditFact(name="files", value=f"{self.files:,}, {size(self.bytes)}")
        each = f", {self.bytes / self.tokens:,.0f} bytes a token" if self.tokens else ""
        yield AuditFact(name="tokens", value=f"{self.tokens:,}{each}")
        for (dtype, layers, width), count in self.forms.most_common(3):
            yield AuditFact(name="states", value=f"{layers} layers of {width} numbers, {dtype}, in {count:,} files")
        same = [one for one in self.sizes if len(one) == len(self.sizes[0])]
        if same:
            means = [sum(column) / len(same) for column in zip(*same, strict=True)]
            yield AuditFact(
                name="size by layer", value=f"{', '.join(f'{one:.3g}' for one in means)} (root mean square; it grows with depth)"
            )
        yield from self._progress()

    def _progress(self) -> Iterator[AuditFact]:
        if not self.expected.tokens or not self.tokens:
            return
        took = max(self.times) - min(self.times)
        left = max(0, self.expected.tokens - self.tokens)
        done = f"{self.tokens / self.expected.tokens:.0%} of {self.expected.tokens:,} tokens"
        if not left or took <= 0:
            yield AuditFact(name="progress", value=done)
            return
        rate = self.tokens / took
        more = size(int(self.bytes / self.tokens * left))
        yield AuditFact(name="progress", value=f"{done}; {rate:,.0f} a second, {left / rate / 3600:.1f} h and {more} to go")

    def items(self) -> Iterator[AuditItem]:
        number, lines = self.counts.number, self.counts.lines
        if len(self.forms) > 1:
            number["mixed forms"] = sum(self.forms.values()) - self.forms.most_common(1)[0][1]
        for kind in kinds.STATES:
            why = self.reason if kind.name == "unreadable" else ""
            yield from kinds.item(kind, number[kind.name], self.files, lines.get(kind.name, ()), why)


def _flat(joined: Stored) -> Stored:
    """[T, n, H] as [T, n * H]: the bytes are the same."""
    tokens, layers, width = joined.shape
    return Stored(dtype=joined.dtype, shape=(tokens, layers * width), first=joined.first, size=joined.size, member=joined.member)


def _rows(one: Stored) -> int:
    """Tokens of a tensor of states: all of its shape but the last, a batch of one left out."""
    count = 1
    for n in one.shape[:-1]:
        count *= n
    return count


def files_in(directory: Path) -> Iterator[Path]:
    """Every file of states below a directory, in SpecForge's groups of rows too. Raises OSError for one that cannot be read."""
    found = 0
    for place, folders, names in os.walk(directory, onerror=_unless_gone):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".safetensors", ".ckpt")) and found < _MAX_FILES:
                found += 1
                yield Path(place, name)


def _unless_gone(error: OSError) -> None:
    """Whoever writes the files may remove a directory meanwhile; one that may not be entered would be missed silently."""
    if not isinstance(error, FileNotFoundError):
        raise error


def run(directory: Path, expected: Expected, *, limit: int | None = None, tell: Callable[[int], None] | None = None) -> Audit:
    """The audit of a directory. Raises OSError."""
    started = time.perf_counter()
    audit, complete = StatesAudit(expected), True
    packed = sum(name.endswith(".ckpt.gz") for _, _, names in os.walk(directory) for name in names)
    for path in files_in(directory):
        if limit is not None and audit.files >= limit:
            complete = False
            break
        audit.take(path)
        if tell is not None:
            tell(audit.files)
    why = NotRead(source=f"{packed} .ckpt.gz files", reason="compressed files are not opened", help="gunzip -k FILE, for a few")
    return Audit(
        gpudiag=__version__,
        kind="states",
        path=str(directory),
        rows=audit.files,
        facts=tuple(audit.facts()),
        items=tuple(audit.items()),
        not_read=(why,) if packed else (),
        took_s=round(time.perf_counter() - started, 3),
        complete=complete,
    )
