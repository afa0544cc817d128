"""What a server's own interpreter knows about the packages installed in it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpudiag.model.reading import NOT_ASKED, Reading


class Distribution(Struct, frozen=True, kw_only=True):
    """One installed distribution. `editable` is the source tree of an editable install."""

    name: str
    version: str
    where: str
    editable: str | None = None
    packages: tuple[str, ...] = ()
    """Top-level import names."""


class Package(Struct, frozen=True, kw_only=True):
    """Where an import name leads, without importing it. `locations` are searched in this order."""

    name: str
    origin: str | None
    locations: tuple[str, ...] = ()


class Environment(Struct, frozen=True, kw_only=True):
    """The interpreter, and what is installed in it."""

    python: str
    version: str
    prefix: str
    path: tuple[str, ...]
    extension_suffixes: tuple[str, ...]
    distributions: tuple[Distribution, ...]
    packages: tuple[Package, ...]
    torch_cuda: str | None = None
    """CUDA version that torch was built for, from the text of torch/version.py; None for a build without CUDA or no torch."""
    baton_by_existence: bool | None = None
    """Whether torch's FileBaton takes a file's existence for a lock (torch/utils/file_baton.py); None without torch."""

    def distribution(self, name: str) -> Distribution | None:
        wanted = canonical(name)
        return next((d for d in self.distributions if canonical(d.name) == wanted), None)

    def package(self, name: str) -> Package | None:
        return next((p for p in self.packages if p.name == name), None)


class ChangedFile(Struct, frozen=True, kw_only=True):
    """A file that is not as its distribution's RECORD says."""

    path: str
    distribution: str
    change: Literal["modified", "missing", "added"]
    detail: str = ""


class SyntaxFault(Struct, frozen=True, kw_only=True):
    """A file that does not compile with the target's own interpreter. `near` are the lines before and after, by number."""

    path: str
    line: int | None
    column: int | None
    message: str
    text: str
    near: tuple[tuple[int, str], ...] = ()


class Verification(Struct, frozen=True, kw_only=True):
    """Installed files against RECORD. `unverifiable` has why a distribution could not be compared."""

    files: int
    compiled: int
    hashed_all: bool
    changes: tuple[ChangedFile, ...]
    faults: tuple[SyntaxFault, ...]
    unverifiable: dict[str, str]


class Pin(Struct, frozen=True, kw_only=True):
    """A requirement of an installed distribution that the environment does not meet; `installed` None is absent."""

    distribution: str
    requirement: str
    package: str
    installed: str | None


class Copies(Struct, frozen=True, kw_only=True):
    """One import package that several distributions or directories provide."""

    package: str
    providers: tuple[str, ...]


class Built(Struct, frozen=True, kw_only=True):
    """A compiled library: where its loader looks, what that finds, and where else files of that name lie."""

    package: str
    pattern: str
    looked_in: str
    found: tuple[str, ...]
    elsewhere: tuple[str, ...]
    newer: tuple[str, ...] = ()
    """Files of the same name, elsewhere, that were built after the one that loads."""
    wrong_suffix: tuple[str, ...] = ()
    """Files whose suffix this interpreter does not import."""


class CachedInfo(Struct, frozen=True, kw_only=True):
    """A cached inspection of a model class that is older than a file it depends on."""

    path: str
    model_module: str
    changed: tuple[str, ...]


class Raised(Struct, frozen=True, kw_only=True):
    """One exception of a chain; `frames` innermost last as (file, line, function)."""

    type: str
    message: str
    frames: tuple[tuple[str, int, str], ...] = ()
    file: str | None = None
    line: int | None = None
    text: str = ""


class Import(Struct, frozen=True, kw_only=True):
    """One module imported in a child of the target's interpreter.

    `in_progress` are the modules that had begun and not finished, outermost first; `chain` the exceptions, outermost
    first, so that the last one is the cause.
    """

    module: str
    outcome: Literal["ok", "exception", "killed", "exited", "hung"]
    took_s: float
    in_progress: tuple[str, ...] = ()
    chain: tuple[Raised, ...] = ()
    extension: str | None = None
    """The compiled extension that was being loaded last."""
    signal: str | None = None
    exit_status: int | None = None
    stderr: str = ""
    ignored: tuple[str, ...] = ()
    """Messages of the engine about modules that it failed to import and went on without."""


class Eagle3Interface(Struct, frozen=True, kw_only=True):
    """Whether the class that serves an architecture lets an EAGLE-3 drafter read its hidden states; read from source.

    `missing` are the members of the engine's protocol that neither the class nor its bases define.
    """

    engine: str
    architecture: str
    file: str | None
    line: int | None
    class_name: str | None
    bases: tuple[str, ...]
    missing: tuple[str, ...]
    wrapped: tuple[str, ...] = ()
    """Inner model classes that do have the interface, which the wrapper does not pass on."""
    unresolved: tuple[str, ...] = ()
    """Bases whose source was not found: with them the answer is not certain."""


class DraftClass(Struct, frozen=True, kw_only=True):
    """The class of an engine that loads a drafter, and which flags of a configuration its file looks at. Read from source."""

    engine: str
    architecture: str
    class_name: str
    file: str
    line: int
    flags: tuple[str, ...]


class FedLayers(Struct, frozen=True, kw_only=True):
    """The layers of the target that one code path of an engine feeds a drafter, as its own functions said.

    `fed` are capture indices: i is the input of layer i. `where` is the function that decided, `reader` the one that looked
    into the drafter's configuration ('' if that was not the engine's), `named` whether it found layers there.
    """

    path: str
    fed: tuple[int, ...]
    how: Literal["import", "source"]
    """Imported as part of the engine, or taken alone out of its installed file."""
    where: str
    reader: str = ""
    named: bool = False


class AuxLayers(Struct, frozen=True, kw_only=True):
    """What an installed engine will feed a drafter. `runner` is the code path that will serve, None if several may."""

    engine: str
    layers: tuple[FedLayers, ...]
    runner: str | None = None
    why: str = ""
    notes: tuple[str, ...] = ()


class Unresolved(Struct, frozen=True, kw_only=True):
    """A library that `path` names in its header (DT_NEEDED) and that the loader would not find."""

    path: str
    name: str
    instead: tuple[str, ...] = ()
    """Other versions of the same library that the environment has: built for another CUDA, as a rule."""


class Needed(Struct, frozen=True, kw_only=True):
    """How many compiled extensions of the engines were looked at, and what they need that is not there."""

    extensions: int
    missing: tuple[Unresolved, ...] = ()


class NcclLibrary(Struct, frozen=True, kw_only=True):
    """A libnccl that `user` (torch or an engine) will load: by what it is found, and its version where the file tells."""

    user: str
    path: str
    by: str
    version: str | None = None


class Install(Struct, frozen=True, kw_only=True):
    """Everything that was asked of one interpreter."""

    python: str
    environment: Reading[Environment]
    verification: Reading[Verification] = NOT_ASKED
    pins: Reading[tuple[Pin, ...]] = NOT_ASKED
    copies: Reading[tuple[Copies, ...]] = NOT_ASKED
    built: Reading[tuple[Built, ...]] = NOT_ASKED
    stale_caches: Reading[tuple[CachedInfo, ...]] = NOT_ASKED
    imports: Reading[tuple[Import, ...]] = NOT_ASKED
    eagle3: Reading[tuple[Eagle3Interface, ...]] = NOT_ASKED
    aux_layers: Reading[tuple[AuxLayers, ...]] = NOT_ASKED
    draft_classes: Reading[tuple[DraftClass, ...]] = NOT_ASKED
    """Classes that load the drafter; an engine that has none is not in it."""
    needed: Reading[Needed] = NOT_ASKED
    nccl: Reading[tuple[NcclLibrary, ...]] = NOT_ASKED


def canonical(name: str) -> str:
    """A distribution's name as packaging compares it (PEP 503)."""
    return name.lower().replace("_", "-").replace(".", "-")
