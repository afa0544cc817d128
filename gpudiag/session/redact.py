"""Takes names and secrets out of any structure of the model, and says what it took.

Every string of the structure is scanned, whatever field it is in, so that a field added later is covered. The same value
gets the same placeholder everywhere: sockets still meet, paths still name the same file, and the verdict stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from gpudiag.session import identity
from gpudiag.session.secret import SECRET_VARIABLE, secret_arguments, secrets_in
from gpudiag.session.words import COMMON, words_of_code, words_of_type

T = TypeVar("T", bound=Struct)
Kind = Literal["host", "user", "ip", "secret", "env"]
Path = tuple[str, ...]

_PLURAL: Final[dict[Kind, tuple[str, str]]] = {
    "host": ("host name", "host names"),
    "user": ("user name", "user names"),
    "ip": ("address", "addresses"),
    "secret": ("secret", "secrets"),
    "env": ("environment value", "environment values"),
}

_MAX_WHERE: Final = 20
"""Places listed per placeholder: enough to find it, bounded however often it occurs."""

HARMLESS_VARIABLES: Final = re.compile(
    r"(?:NCCL|CUDA|TORCH|TORCHELASTIC|PYTORCH|VLLM|SGLANG|SGL|OMP|MKL|GLOO|UCX|FI|OMPI|PMI|PMIX|SLURM|TRITON|FLASHINFER|NVIDIA|NVSHMEM|"
    r"DEEPEP|RDMAV|HF|TRANSFORMERS|TOKENIZERS|PYTHON|XLA|ROCR|HIP|HSA|RCCL|RAY|KMP|MALLOC|MAX|NINJA|GPUDIAG)(?:_\w*)?|PYTHON\w+|"
    r"(?:LOCAL_|GROUP_|ROLE_|NODE_)?(?:RANK|WORLD_SIZE)|LOCAL_SIZE|MASTER_(?:ADDR|PORT)|NODE_RANK|PATH|LD_LIBRARY_PATH|LD_PRELOAD|"
    r"TMPDIR|TEMP|TMP|HOME|USER|LOGNAME|HOSTNAME|VIRTUAL_ENV|CONDA_PREFIX|CC|CXX|CUDACXX|LANG|LC_\w+|TERM|TZ|KUBERNETES_PORT|container"
)
"""Variables whose values say how a server is set up. Every other value is replaced, and of these the ones named like a secret."""


class Redacted(Struct, frozen=True, kw_only=True):
    """One value that was taken out: how often, and in which fields. The value itself is not kept."""

    kind: Kind
    placeholder: str
    count: int
    where: tuple[str, ...]


class RedactionReport(Struct, frozen=True, kw_only=True):
    """Everything that was taken out of a structure."""

    items: tuple[Redacted, ...] = ()

    @property
    def summary(self) -> str:
        """'2 host names, 1 user name, 3 addresses', or 'nothing'."""
        totals: dict[Kind, int] = {}
        for item in self.items:
            totals[item.kind] = totals.get(item.kind, 0) + 1
        return ", ".join(f"{n} {_PLURAL[kind][n > 1]}" for kind, n in totals.items()) or "nothing"


class Redactor:
    """Replaces names and secrets. One redactor may serve several structures: a value keeps its placeholder across them."""

    def __init__(self) -> None:
        self._placeholders: dict[tuple[Kind, str], str] = {}
        self._counts: dict[str, int] = {}
        self._where: dict[str, dict[str, None]] = {}
        self._kinds: dict[str, Kind] = {}
        self._hosts: dict[str, None] = {}
        self._users: dict[str, None] = {}
        self._words: frozenset[str] = frozenset()
        self._corpus = ""
        self._names: re.Pattern[str] | None = None
        self._cache: dict[str, tuple[str, tuple[str, ...]]] = {}

    def apply(self, value: T) -> T:
        """The same structure without names and secrets. It is validated against its type again."""
        plain = msgspec.to_builtins(value)
        self._learn(plain, type(value))
        return msgspec.convert(self._walk(plain, ()), type(value))

    @property
    def report(self) -> RedactionReport:
        return RedactionReport(
            items=tuple(
                Redacted(kind=self._kinds[p], placeholder=p, count=n, where=tuple(self._where[p]))
                for p, n in sorted(self._counts.items())
            )
        )

    def _learn(self, plain: Any, kind: type) -> None:
        """Find every name before anything is replaced: a user's name may show up before the path that gives it away."""
        texts: set[str] = set()
        flags: set[str] = set()
        for path, text in _strings(plain, ()):
            texts.add(text)
            if path[-1:] == ("host",) or path[-2:] == ("host", "name"):
                self._hosts.update(dict.fromkeys(identity.host_name(text)))
        for table in _tables(plain):
            for name, text in table.items():
                self._hosts.update(dict.fromkeys(identity.hosts_in_variable(name, text)))
                self._users.update(dict.fromkeys(identity.user_in_variable(name, text)))
        for arguments in _argument_lists(plain):
            self._hosts.update(dict.fromkeys(identity.hosts_in_arguments(arguments)))
            flags.update(a.partition("=")[0] for a in arguments if a.startswith("-"))
        for text in sorted(texts):
            self._users.update(dict.fromkeys(identity.users_in(text)))
            self._hosts.update(dict.fromkeys(identity.hosts_in_urls(text)))
        self._words |= COMMON | words_of_type(kind) | words_of_code(set(_frames(plain)), flags)
        self._corpus = "\0".join((self._corpus, *sorted(texts)))
        self._names = self._name_pattern()
        self._cache.clear()

    def _name_pattern(self) -> re.Pattern[str] | None:
        """One pattern for all names: where they stand as a name, and anywhere if nothing else is called so."""
        hosts = sorted({n for host in self._hosts for n in (host, host.partition(".")[0])}, key=len, reverse=True)
        users = sorted(self._users, key=len, reverse=True)
        parts = []
        if users:
            parts.append(rf"(?:(?<=/home/)|(?<=/Users/)|(?<=~))(?P<home>{_any(users)})(?=/|$|[\s:'\",;)\]}}])")
        if hosts:
            parts.append(rf"(?:^|(?<==))(?P<endpoint>{_any(hosts)})(?=:\d+$)")
            parts.append(rf"(?:(?<=//)|(?<=@))(?P<address>{_any(hosts)})(?=[:/]|$)")
        if free := [h for h in hosts if self._rare(h)]:
            parts.append(rf"(?<![A-Za-z0-9])(?P<host>{_any(free)})(?![A-Za-z0-9]|\.\d)")
        if free := [u for u in users if self._rare(u)]:
            parts.append(rf"(?<![A-Za-z0-9])(?P<user>{_any(free)})(?![A-Za-z0-9])")
        return re.compile("|".join(parts)) if parts else None

    def _rare(self, name: str) -> bool:
        return len(name) > 2 and not name.isdigit() and name.lower() not in self._words

    def _walk(self, node: Any, path: Path) -> Any:
        if isinstance(node, str):
            return self._text(node, path)
        if isinstance(node, dict):
            if _is_table(node, path):
                return {key: self._variable(key, text, (*path, key)) for key, text in node.items()}
            return {self._key(key, path): self._walk(item, (*path, str(key))) for key, item in node.items()}
        if isinstance(node, list | tuple):
            secret = secret_arguments(list(node)) if _is_argument_list(node) else set()
            here = (*path, "[]")
            return [self._take("secret", item, here) if i in secret else self._walk(item, here) for i, item in enumerate(node)]
        return node

    def _key(self, key: Any, path: Path) -> Any:
        return self._text(key, (*path, "key")) if isinstance(key, str) else key

    def _variable(self, name: str, text: str, path: Path) -> str:
        if SECRET_VARIABLE.search(name):
            return self._take("secret", text, path) if text else text
        if not HARMLESS_VARIABLES.fullmatch(name):
            return self._take("env", text, path) if text else text
        return self._text(text, path)

    def _text(self, text: str, path: Path) -> str:
        """One string, cleaned. Results are kept: the frames of a thousand threads are mostly the same few strings."""
        whole_host = path[-1:] == ("host",) or path[-2:] == ("host", "name")
        if whole_host and text not in identity.NO_HOST:
            return self._take("host", text, path)
        if text not in self._cache:
            self._cache[text] = self._clean(text)
        cleaned, taken = self._cache[text]
        for placeholder in taken:
            self._count(placeholder, path)
        return cleaned

    def _clean(self, text: str) -> tuple[str, tuple[str, ...]]:
        taken: list[str] = []
        pieces: list[str] = []
        spans = _disjoint(
            [(s, e, "secret") for s, e in secrets_in(text)]
            + [(s, e, "ip") for s, e in identity.addresses_in(text)]
            + self._names_in(text)
        )
        position = 0
        for start, end, kind in spans:
            placeholder = self._placeholder(kind, text[start:end])
            taken.append(placeholder)
            pieces += [text[position:start], placeholder]
            position = end
        return "".join((*pieces, text[position:])), tuple(taken)

    def _names_in(self, text: str) -> list[tuple[int, int, Kind]]:
        if self._names is None:
            return []
        return [
            (*m.span(), "user" if m.lastgroup in ("home", "user") else "host")
            for m in self._names.finditer(text)
            if m.lastgroup is not None
        ]

    def _take(self, kind: Kind, value: str, path: Path) -> str:
        placeholder = self._placeholder(kind, value)
        self._count(placeholder, path)
        return placeholder

    def _placeholder(self, kind: Kind, value: str) -> str:
        """The placeholder of a value. A text that already occurs in the target is never used as one."""
        if kind == "host":
            # node-1 and node-1.example.org are one machine.
            value = next((h for h in self._hosts if h.partition(".")[0] == value), value)
        key = (kind, value)
        if key not in self._placeholders:
            number = 1 + sum(k == kind for k in self._kinds.values())
            while (candidate := f"{kind}-{number}") in self._kinds or candidate in self._corpus:
                number += 1
            self._placeholders[key] = candidate
            self._kinds[candidate] = kind
        return self._placeholders[key]

    def _count(self, placeholder: str, path: Path) -> None:
        self._counts[placeholder] = self._counts.get(placeholder, 0) + 1
        where = self._where.setdefault(placeholder, {})
        if len(where) < _MAX_WHERE:
            where[_dotted(path)] = None


def _any(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, names))


def _dotted(path: Path) -> str:
    return ".".join(p for p in path if not p.isdigit()).replace(".[]", "[]")


def _disjoint(spans: list[tuple[int, int, Kind]]) -> list[tuple[int, int, Kind]]:
    """Sorted spans without overlap; of two that overlap the one that starts first, then the longer."""
    kept: list[tuple[int, int, Kind]] = []
    for span in sorted(spans, key=lambda s: (s[0], -s[1])):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept


def _strings(node: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(node, str):
        yield path, node
    elif isinstance(node, dict):
        for key, item in node.items():
            if isinstance(key, str):
                yield (*path, "key"), key
            yield from _strings(item, (*path, str(key)))
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _strings(item, (*path, "[]"))


def _frames(node: Any) -> Iterator[tuple[str, str]]:
    """Function and file of every frame."""
    if isinstance(node, dict):
        if isinstance(node.get("function"), str) and isinstance(node.get("file"), str):
            yield node["function"], node["file"]
        for item in node.values():
            yield from _frames(item)
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _frames(item)


def _is_table(node: dict[Any, Any], path: Path) -> bool:
    """Whether a dictionary is an environment: a field called `environ`, or the value of a reading in such a field."""
    return path[-2:] == ("environ", "value") or (path[-1:] == ("environ",) and "reading" not in node)


def _tables(node: Any, path: Path = ()) -> Iterator[dict[str, str]]:
    """Environments: dictionaries in a field called `environ`."""
    if isinstance(node, dict):
        if _is_table(node, path):
            yield node
        for key, item in node.items():
            yield from _tables(item, (*path, str(key)))
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _tables(item, path)


def _is_argument_list(node: list[Any] | tuple[Any, ...]) -> bool:
    return bool(node) and all(isinstance(item, str) for item in node)


def _argument_lists(node: Any) -> Iterator[list[str]]:
    if isinstance(node, dict):
        for item in node.values():
            yield from _argument_lists(item)
    elif isinstance(node, list | tuple):
        if _is_argument_list(node):
            yield list(node)
        for item in node:
            yield from _argument_lists(item)
