"""The engine does not import: GPD201 to GPD205, 217, 220 and 227 before a start, one check for each kind of end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Evidence, Finding, Severity
from gpudiag.model.install import Import, Raised
from gpudiag.rules.install import needed_libraries
from gpudiag.rules.install.reading import part, short
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen

_LIBRARY: Final = re.compile(r"(?:^|[\s:])(lib[\w.+-]+\.so[.\d]*|[\w./+-]+\.so[.\d]*): cannot open shared object file")
_SYMBOL: Final = re.compile(r"undefined symbol: (\S+)")
_KINDS: Final = ("GPD201", "GPD202", "GPD203", "GPD204", "GPD205", "GPD217", "GPD220", "GPD227")


def kind(one: Import) -> str | None:
    """The code of how an import ended, None if it went well."""
    if one.outcome == "ok":
        return None
    if one.outcome == "hung":
        return "GPD227"
    if one.outcome in ("killed", "exited") or not one.chain:
        return "GPD217"
    root = one.chain[-1]
    if root.type in ("SyntaxError", "IndentationError", "TabError"):
        return "GPD201"
    if _LIBRARY.search(root.message):
        return "GPD203"
    if _SYMBOL.search(root.message):
        return "GPD204"
    if root.type == "ModuleNotFoundError":
        return "GPD202"
    return "GPD205" if root.type in ("ImportError", "AttributeError") else "GPD220"


def _evaluate(code: str) -> Callable[[Facts], Answer]:
    def evaluate(facts: Facts) -> Answer:
        static = tuple(needed_libraries.findings(_BY_CODE[code], facts)) if code == "GPD203" else ()
        imports = part(facts, lambda install: install.imports)
        if isinstance(imports, Answer):
            by_headers = code == "GPD203" and imports.status == "skipped"
            return found(static, needed_libraries.answer(facts) if by_headers else imports)
        made = [*(_finding(_BY_CODE[code], one) for one in imports if kind(one) == code), *static]
        times = ", ".join(f"{one.module} in {one.took_s:.1f} s" for one in imports if one.outcome == "ok")
        return found(made, passed(f"imported {times}" if times else "not how an import ended"))

    return evaluate


def _finding(check: Check, one: Import) -> Finding:
    root = one.chain[-1] if one.chain else None
    title, steps = _told(check.info.code, one, root)
    path = " > ".join(one.in_progress[-6:])
    links = [seen("import", f"importing {one.module} {_end(one)}", _excerpt(one, root))]
    notes = [Evidence(source="import", claim=f"modules that had begun: {path}")] if path else []
    notes += [
        Evidence(source="import", claim=f"then raised as {raised.type}: {raised.message[:200]}") for raised in one.chain[:-1][:3]
    ]
    return check.finding(title, links, steps, culprits=(_culprit(one, root),), notes=notes)


def _end(one: Import) -> str:
    match one.outcome:
        case "killed":
            return f"ended with {one.signal}" + (f" while loading {one.extension}" if one.extension else "")
        case "exited":
            return f"ended the process with status {one.exit_status}"
        case "hung":
            return f"had not finished after {one.took_s:.0f} s"
        case _:
            return f"raised {one.chain[-1].type}"


def _excerpt(one: Import, root: Raised | None) -> str:
    if root is None:
        return one.stderr[-1500:]
    frames = "\n".join(f"{short(file)}:{line} {function}" for file, line, function in root.frames[-5:])
    return f"{frames}\n{root.type}: {root.message[:600]}".strip()


def _culprit(one: Import, root: Raised | None) -> Culprit:
    file: str | None = None
    line: int | None = None
    function: str | None = None
    if root and root.line:
        file, line = root.file, root.line
    elif root and root.frames:
        file, line, function = root.frames[-1]
    if file is None and one.extension:
        file = one.extension.partition(" ")[2] or None
    node = f"file:{file}" if file else f"file:{one.module}"
    return Culprit(node=node, file=file, line=line, function=function, path=file)


def _told(code: str, one: Import, root: Raised | None) -> tuple[str, tuple[str, ...]]:
    message = root.message.splitlines()[0][:200] if root and root.message else ""
    match code:
        case "GPD201":
            where = f"{short(root.file or '?')}, line {root.line}" if root else "?"
            return f"{one.module} cannot be imported: {where} does not parse", ("gpudiag doctor --only GPD106", "mend that line")
        case "GPD202":
            return f"{one.module} cannot be imported: {message}", (
                "install what is missing, with the version that the engine asks for",
            )
        case "GPD203":
            library = _LIBRARY.search(root.message) if root else None
            return (
                f"{one.module} cannot be imported: {library[1] if library else 'a shared library'} is not found",
                (
                    "install the package that brings it, of the CUDA major version that torch was built for",
                    "gpudiag doctor --only GPD107",
                ),
            )
        case "GPD204":
            symbol = _SYMBOL.search(root.message) if root else None
            return (
                f"{one.module} cannot be imported: an extension needs {symbol[1][:60] if symbol else '?'}, which nobody has",
                (_symbol_hint(symbol[1] if symbol else ""), "gpudiag doctor --only GPD107"),
            )
        case "GPD217":
            return f"Importing {one.module} {_end(one)}", (
                "the stack below names the extension: reinstall it, or its build for this CPU and GPU",
            )
        case "GPD227":
            last = one.in_progress[-1] if one.in_progress else one.module
            return f"Importing {one.module} does not finish; it stands in {last}", (
                "the stack below shows where; a network or file lock is usual",
            )
        case _:
            return f"{one.module} cannot be imported: {root.type if root else '?'}: {message}", (
                "the frames below name the line",
            )


def _symbol_hint(symbol: str) -> str:
    """Whose symbol it is, by its mangled name."""
    if symbol.startswith(("_ZN3c10", "_ZNK3c10", "_ZN2at", "_ZNK2at", "_ZN5torch")):
        return "it is one of torch: install the build of this extension for this torch version"
    if symbol.startswith(("cuda", "cublas", "cudnn", "nvrtc")):
        return "it is one of CUDA: the extension and the CUDA libraries are of different versions"
    if symbol.startswith("Py"):
        return "it is one of Python: the extension was built for another interpreter"
    return "reinstall the extension so that it matches what it was linked with"


def _check(code: str, name: str, asks: str, severity: Severity = "error") -> Check:
    info = CheckInfo(code=code, name=name, severity=severity, category="install", asks=asks)
    return Check(info=info, evaluate=_evaluate(code))


CHECKS: Final = (
    _check("GPD201", "import-syntax-error", "does everything that the engine imports parse?"),
    _check("GPD202", "import-module-missing", "is every module there that the engine imports?"),
    _check("GPD203", "shared-library-missing", "are the shared libraries there that its extensions need?"),
    _check("GPD204", "undefined-symbol", "do its extensions fit the libraries that they were linked with?"),
    _check("GPD205", "import-name-missing", "does every module have the names that others import from it?"),
    _check("GPD217", "native-crash", "does the engine import without the process dying?"),
    _check("GPD220", "worker-raised", "does the engine import without any other exception?"),
    _check("GPD227", "import-hangs", "does importing the engine come to an end?"),
)

_BY_CODE: Final = {check.info.code: check for check in CHECKS}
