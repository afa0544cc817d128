"""A report as JSON, schema gpudiag.report/1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpudiag.model.report import Report

_CONTROL: Final = re.compile("[\x7f-\x9f]")


def dumps(report: Report | Sequence[Report], *, indent: int | None = None) -> str:
    r"""JSON text of one report, or an array of several. Keys always come in the same order, the schema first.

    Bytes of the target that are no UTF-8 become `\xNN`, and no control character stands in the text as itself.
    """
    plain: Any = _plain(report) if isinstance(report, Report) else [_plain(r) for r in report]
    data = msgspec.json.encode(plain)
    if indent is not None:
        data = msgspec.json.format(data, indent=indent)
    # JSON leaves DEL and the C1 controls alone, terminals do not.
    return _CONTROL.sub(lambda m: f"\\u{ord(m.group()):04x}", data.decode())


def _plain(report: Report) -> dict[str, Any]:
    fields: dict[str, Any] = _encodable(msgspec.to_builtins(report))
    return {"schema": fields.pop("schema"), **fields}


def _encodable(node: Any) -> Any:
    if isinstance(node, str):
        return node if node.isascii() else node.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(node, dict):
        return {_encodable(k): _encodable(v) for k, v in node.items()}
    if isinstance(node, list | tuple):
        return [_encodable(item) for item in node]
    return node
