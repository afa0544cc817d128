"""Mangled C++ names: the part of the Itanium ABI that says whose symbol it is.

Only names are read (nested names, template names, constructors, operators by code), not parameter types: for 'which
library should have had it' the qualified name is enough. https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling
"""

from __future__ import annotations

import re
from typing import Final

_OPERATORS: Final = {
    "nw": "operator new",
    "dl": "operator delete",
    "eq": "operator==",
    "ne": "operator!=",
    "lt": "operator<",
    "gt": "operator>",
    "ls": "operator<<",
    "rs": "operator>>",
    "pl": "operator+",
    "mi": "operator-",
    "ml": "operator*",
    "dv": "operator/",
    "aS": "operator=",
    "ix": "operator[]",
    "cl": "operator()",
}
_STANDARD: Final = {
    "St": "std",
    "Sa": "std::allocator",
    "Ss": "std::string",
    "Sb": "std::basic_string",
    "Si": "std::istream",
    "So": "std::ostream",
    "Sd": "std::iostream",
}
_PREFIXES: Final = {
    "TV": "vtable for ",
    "TI": "typeinfo for ",
    "TS": "typeinfo name for ",
    "TT": "VTT for ",
    "GV": "guard variable for ",
}

_OWNERS: Final = (
    (re.compile(r"^(?:at|c10|c10d|torch|caffe2|THP\w*)(?:::|$)|^aoti_torch|^THP|^at_"), "torch"),
    (re.compile(r"^nccl|^pnccl"), "NCCL"),
    (re.compile(r"^cublas|^cudnn|^cusparse|^cusolver|^nvrtc|^cuda[A-Z]|^__cuda"), "the CUDA toolkit libraries"),
    (re.compile(r"^cu[A-Z]"), "the driver's libcuda"),
    (re.compile(r"^nvshmem"), "NVSHMEM"),
    (re.compile(r"^Py[A-Z]|^_Py"), "Python"),
    (re.compile(r"^ibv_|^mlx5"), "the RDMA libraries"),
    (re.compile(r"^tvm|^TVM"), "tvm-ffi"),
    (re.compile(r"^std(?:::|$)|^__cxa|^__gxx|^_?GLIBC|^GOMP_|^omp_"), "the C++ runtime"),
    (re.compile(r"^numa_"), "libnuma"),
)


def demangle(symbol: str) -> str | None:
    """The qualified name behind a mangled symbol, or None if it is none or is written in a way this reader does not know."""
    if not symbol.startswith("_Z"):
        return None
    rest, prefix = symbol[2:], ""
    if rest[:2] in _PREFIXES:
        prefix, rest = _PREFIXES[rest[:2]], rest[2:]
    name, _ = _name(rest, 0)
    return prefix + name if name else None


def owner_of(symbol: str) -> str:
    """The library in which a symbol should have been: 'torch', 'NCCL' ... or 'the other library'."""
    name = (demangle(symbol) or symbol).removeprefix("vtable for ").removeprefix("typeinfo for ")
    return next((owner for pattern, owner in _OWNERS if pattern.search(name)), "the other library")


def uses_old_strings(symbol: str) -> bool:
    """Whether the symbol takes std::string in the layout from before GCC 5 (_GLIBCXX_USE_CXX11_ABI=0)."""
    if not symbol.startswith("_Z") or "__cxx11" in symbol:
        return False
    _, end = _name(symbol[2:], 0)
    return "Ss" in symbol[2 + end :]


def _name(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] == "N":
        return _nested(text, at + 1)
    if text[at : at + 2] == "St":
        inner, at = _part(text, at + 2)
        return (f"std::{inner}" if inner else "", at)
    return _part(text, at)


def _nested(text: str, at: int) -> tuple[str, int]:
    while text[at : at + 1] in ("K", "V", "r", "R", "O"):
        at += 1
    parts: list[str] = []
    while at < len(text) and text[at] != "E" and len(parts) < 64:
        two = text[at : at + 2]
        if two in _STANDARD:
            parts.append(_STANDARD[two])
            at += 2
        elif text[at] == "I":
            at = _skip_arguments(text, at)
        elif two[:1] in ("C", "D") and two[1:].isdigit() and parts:
            last = parts[-1].rpartition("::")[2]
            parts.append(last if two[0] == "C" else f"~{last}")
            at += 2
        else:
            part, after = _part(text, at)
            if not part:
                break
            parts.append(part)
            at = after
    return "::".join(parts), at + 1


def _part(text: str, at: int) -> tuple[str, int]:
    digits = re.compile(r"\d{1,4}").match(text, at)
    if digits:
        length = int(digits.group())
        start = digits.end()
        name = text[start : start + length]
        if len(name) < length:
            return "", at
        return ("(anonymous namespace)" if name.startswith("_GLOBAL__N") else name), start + length
    if text[at : at + 2] in _OPERATORS:
        return _OPERATORS[text[at : at + 2]], at + 2
    return "", at


def _skip_arguments(text: str, at: int) -> int:
    """Past one I...E list. Nested lists and names open with I, N, J, X, L and F and close with E; sizes are stepped over."""
    depth = 0
    while at < len(text):
        digits = re.compile(r"\d{1,4}").match(text, at)
        if digits and text[at - 1] not in "LijlmxyhstafdbTS_":
            at = digits.end() + int(digits.group())
            continue
        if text[at] in "INJXLF":
            depth += 1
        elif text[at] == "E":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return at
