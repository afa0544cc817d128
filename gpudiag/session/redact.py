"""Takes names and secrets out of any structure of the model, and says what it took.

Every string of the structure is scanned, whatever field it is in, so that a field added later is covered. The same value
gets the same placeholder everywhere: sockets still meet, paths still name the same file, and the verdict stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import Struct

from gpudiag.session import identity
from gpudiag.session.prompt import prompts_in
from gpudiag.session.secret import SECRET_FLAG, SECRET_VARIABLE, secret_arguments, secrets_in
from gpudiag.session.survey import Survey, is_argument_list, is_environment, is_host_field, variable
from gpudiag.session.words import COMMON, words_of_code, words_of_type

T = TypeVar("T", bound=Struct)
Kind = Literal["host", "user", "ip", "secret", "env", "prompt"]

_PLURAL: Final[dict[Kind, tuple[str, str]]] = {
    "host": ("host name", "host names"),
    "user": ("user name", "user names"),
    "ip": ("address", "addresses"),
    "secret": ("secret", "secrets"),
    "env": ("environment value", "environment values"),
    "prompt": ("prompt or answer", "prompts and answers"),
}

_ALL: Final[frozenset[Kind]] = frozenset(get_args(Kind))
NEVER_SHOWN: Final[frozenset[Kind]] = frozenset({"secret", "prompt"})
"""What is not even shown on the terminal of whoever may read the server anyway: terminals are copied and recorded."""

_MAX_WHERE: Final = 20
"""Places listed per placeholder: enough to find it, bounded however often it occurs."""

_HOST_KEYS: Final = frozenset({"host", "name"})
"""Fields that may be a host's own, where even a common word is a name."""

HARMLESS_VARIABLES: Final = re.compile(
    r"(?:NCCL|CUDA|TORCH|TORCHELASTIC|PYTORCH|VLLM|SGLANG|SGL|OMP|MKL|GLOO|UCX|FI|OMPI|PMI|PMIX|SLURM|TRITON|FLASHINFER|NVIDIA|NVSHMEM|"
    r"DEEPEP|RDMAV|HF|TRANSFORMERS|TOKENIZERS|PYTHON|XLA|ROCR|HIP|HSA|RCCL|RAY|KMP|MALLOC|MAX|NINJA|GPUDIAG)(?:_\w*)?|PYTHON\w+|"
    r"(?:LOCAL_|GROUP_|ROLE_|NODE_)?(?:RANK|WORLD_SIZE)|LOCAL_SIZE|MASTER_(?:ADDR|PORT)|NODE_RANK|PATH|LD_LIBRARY_PATH|LD_PRELOAD|"
    r"TMPDIR|TEMP|TMP|HOME|USER|LOGNAME|HOSTNAME|VIRTUAL_ENV|CONDA_PREFIX|CC|CXX|CUDACXX|LANG|LC_\w+|TERM|TZ|KUBERNETES_PORT|container"
)
"""Variables whose values say how a server is set up. Every other value is replaced, and of these the ones named like a secret."""


_OPAQUE: Final = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9][A-Za-z0-9+/=_-]{15,}")
"""Long, of letters and digits, without a slash at its start or a dot: no path, no number, no sentence."""


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
    """Replaces names and secrets. One redactor may serve several structures: a value keeps its placeholder across them.

    `only` limits it to some kinds: what a terminal shows may name the machine it is on, but never a token or a prompt.
    """

    def __init__(self, only: Collection[Kind] = _ALL) -> None:
        self._only = frozenset(only)
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
        self._harmless: set[str] = set()

    def apply(self, value: T) -> T:
        """The same structure without names and secrets. It is validated against its type again."""
        plain = msgspec.to_builtins(value)
        self._learn(plain, type(value))
        return msgspec.convert(self._walk(plain, ""), type(value))

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
        survey = Survey(plain)
        self._hosts.update(survey.hosts)
        self._users.update(survey.users)
        self._words |= COMMON | words_of_type(kind) | words_of_code(survey.frames, survey.flags)
        self._corpus = "\0".join((self._corpus, *sorted(survey.texts)))
        self._names = self._name_pattern()
        self._cache.clear()
        self._harmless.clear()

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

    def _walk(self, node: Any, path: str) -> Any:
        if isinstance(node, str):
            return self._text(node, path)
        if isinstance(node, dict):
            return self._dictionary(node, path)
        if (pair := variable(node, path)) is not None:
            return [pair[0], self._variable(*pair, path)]
        if isinstance(node, list | tuple):
            here = f"{path}[]"
            secret = secret_arguments(list(node)) if is_argument_list(node) else ()
            return [self._take("secret", item, here) if i in secret else self._walk(item, here) for i, item in enumerate(node)]
        return node

    def _dictionary(self, node: dict[Any, Any], path: str) -> dict[Any, Any]:
        if is_environment(node, path):
            return {key: self._variable(key, text, f"{path}.{key}") for key, text in node.items()}
        if (option := variable(node, path)) is not None:
            node = {**node, "value": self._setting(*option, f"{path}.value")}
        harmless = self._harmless
        found = {}
        for key, item in node.items():
            name = key if key in harmless or not isinstance(key, str) else self._text(key, f"{path}.key")
            # Most of a structure is numbers, and texts that were met before and hold nothing.
            if isinstance(item, str):
                known = item in harmless and key not in _HOST_KEYS
                found[name] = item if known else self._text(item, _below(path, name))
            elif isinstance(item, dict | list | tuple):
                found[name] = self._walk(item, _below(path, name))
            else:
                found[name] = item
        return found

    def _setting(self, name: str, text: str, path: str) -> str:
        """The value of a variable or an option. The caller scans it once more, which changes nothing."""
        if identity.is_variable(name):
            return self._variable(name, text, path)
        return self._take("secret", text, path) if text and SECRET_FLAG.fullmatch(name) else text

    def _variable(self, name: str, text: str, path: str) -> str:
        if SECRET_VARIABLE.search(name):
            return self._take("secret", text, path) if text else text
        if not HARMLESS_VARIABLES.fullmatch(name):
            return self._take("env", text, path) if text else text
        return self._text(text, path)

    def _text(self, text: str, path: str) -> str:
        """One string, cleaned. Results are kept: the frames of a thousand threads are mostly the same few strings."""
        if is_host_field(path) and text not in identity.NO_HOST:
            return self._take("host", text, path)
        found = self._cache.get(text)
        if found is None:
            found = self._cache[text] = self._clean(text)
            if not found[1]:
                self._harmless.add(text)
        for placeholder in found[1]:
            self._count(placeholder, path)
        return found[0]

    def _clean(self, text: str) -> tuple[str, tuple[str, ...]]:
        taken: list[str] = []
        pieces: list[str] = []
        spans = _disjoint(
            [(s, e, "secret") for s, e in secrets_in(text)]
            + [(s, e, "prompt") for s, e in prompts_in(text)]
            + _assigned_secrets(text)
            + [(s, e, "ip") for s, e in identity.addresses_in(text)]
            + self._names_in(text)
        )
        position = 0
        for start, end, kind in spans:
            if kind not in self._only:
                continue
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

    def _take(self, kind: Kind, value: str, path: str) -> str:
        if kind not in self._only:
            return value
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

    def _count(self, placeholder: str, path: str) -> None:
        self._counts[placeholder] = self._counts.get(placeholder, 0) + 1
        where = self._where.setdefault(placeholder, {})
        if len(where) < _MAX_WHERE:
            where[path] = None


def _assigned_secrets(text: str) -> list[tuple[int, int, Kind]]:
    """Values of variables that a text sets: secret by the name, or long and no word under a name that says nothing."""
    found: list[tuple[int, int, Kind]] = []
    for name, value, (start, end) in identity.assigned(text):
        if SECRET_VARIABLE.search(name):
            found.append((start, end, "secret"))
        elif not HARMLESS_VARIABLES.fullmatch(name) and _OPAQUE.fullmatch(value):
            found.append((start, end, "env"))
    return found


def _below(path: str, key: object) -> str:
    name = key if isinstance(key, str) else "[]"
    return f"{path}.{name}" if path else name


def _any(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, names))


def _disjoint(spans: list[tuple[int, int, Kind]]) -> list[tuple[int, int, Kind]]:
    """Sorted spans without overlap; of two that overlap the one that starts first, then the longer."""
    kept: list[tuple[int, int, Kind]] = []
    for span in sorted(spans, key=lambda s: (s[0], -s[1])):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept
