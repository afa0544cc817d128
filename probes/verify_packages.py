"""Compares installed files with their distribution's RECORD, and compiles those that are not as they were.

needs: site
timeout: 60 s (reads every Python file of the distributions; with --deep every file)
writes: none

Arguments: [--deep] distribution names. Python files are compared by hash, others by size, unless --deep. Only changed and
added Python files are compiled, with this interpreter: the others are what their publisher compiled. Of an editable install,
which has no RECORD, those without a fresh .pyc are.
"""

import base64
import csv
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import struct
import sys
import warnings

SCHEMA = "gpudiag.probe/1"
MAX_CHANGES = 500
MAX_COMPILED = 20000
BEFORE, AFTER = 40, 3
SOURCES = (".py", ".so", ".pyd", ".pth")
LEFT_BY_TOOLS = ("__pycache__", ".git", ".mypy_cache", ".ruff_cache")


def canonical(name):
    return re.sub(r"[-_.]+", "-", name or "").lower()


def distribution(name):
    """By name; the first on the path, as importlib.metadata has it."""
    for one in importlib.metadata.distributions():
        if canonical(one.metadata["Name"]) == canonical(name):
            return one
    return None


def editable_of(one):
    try:
        url = json.loads(one.read_text("direct_url.json") or "null")
    except ValueError:
        return None
    editable = isinstance(url, dict) and (url.get("dir_info") or {}).get("editable")
    return re.sub(r"^file://", "", str(url.get("url"))) if editable else None


def rows(one):
    """Path, algorithm, hash and size of each line of RECORD that promises something."""
    for row in csv.reader((one.read_text("RECORD") or "").splitlines()):
        path, promised, size = [*row, "", "", ""][:3]
        if path:
            algorithm, _, value = promised.partition("=")
            yield str(one.locate_file(path)), path, algorithm, value, size


def change_of(full, path, algorithm, value, size, deep):
    """What is different about one file, None if nothing is."""
    try:
        have = os.stat(full)
    except OSError:
        # An installer may leave out compiled files; pip lists them and removes them with the package.
        return None if path.endswith(".pyc") else ("missing", "")
    if size.isdigit() and have.st_size != int(size):
        return "modified", f"size {size} became {have.st_size}"
    if algorithm and (deep or path.endswith(".py")) and digest(full, algorithm) != value:
        return "modified", "same size, other content"
    return None


def digest(path, algorithm):
    try:
        state = hashlib.new(algorithm)
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                state.update(block)
    except (OSError, ValueError):
        return None
    return base64.urlsafe_b64encode(state.digest()).rstrip(b"=").decode()


def added(site, listed, tops):
    """Sources and libraries in the distribution's packages that RECORD does not know."""
    for top in sorted(tops):
        for place, directories, files in os.walk(os.path.join(site, top)):
            directories[:] = sorted(d for d in directories if d not in LEFT_BY_TOOLS)
            for file in sorted(files):
                full = os.path.join(place, file)
                if file.endswith(SOURCES) and os.path.normpath(full) not in listed:
                    yield full


def verify(one, deep):
    """Changes of one distribution, how many files it lists, and which of its files are to be compiled."""
    name = one.metadata["Name"]
    changes, listed, tops, doubtful, count = [], set(), set(), [], 0
    site = str(one.locate_file(""))
    for full, path, algorithm, value, size in rows(one):
        count += 1
        listed.add(os.path.normpath(full))
        if "/" in path and not path.startswith(("..", "/")) and not path.partition("/")[0].endswith((".dist-info", ".data")):
            tops.add(path.partition("/")[0])
        difference = change_of(full, path, algorithm, value, size, deep)
        if difference:
            changes.append(
                {"path": os.path.normpath(full), "distribution": name, "change": difference[0], "detail": difference[1]}
            )
        if path.endswith(".py") and (difference or not algorithm):
            doubtful.append(full)
    for full in added(site, listed, tops):
        changes.append({"path": full, "distribution": name, "change": "added", "detail": ""})
        if full.endswith(".py"):
            doubtful.append(full)
    return changes, count, doubtful


def fresh(path):
    """Whether the compiled file beside a source was made of it as it is: PEP 552."""
    try:
        compiled = importlib.util.cache_from_source(path)
        with open(compiled, "rb") as file:
            magic, flags, mtime, size = struct.unpack("<4sIII", file.read(16))
        source = os.stat(path)
    except (OSError, struct.error, NotImplementedError):
        return False
    same = mtime == int(source.st_mtime) & 0xFFFFFFFF and size == source.st_size & 0xFFFFFFFF
    return magic == importlib.util.MAGIC_NUMBER and flags == 0 and same


def stale_sources(tree):
    found = []
    for place, directories, files in os.walk(tree):
        directories[:] = sorted(d for d in directories if d not in LEFT_BY_TOOLS and not d.startswith("."))
        found.extend(os.path.join(place, f) for f in sorted(files) if f.endswith(".py") and not fresh(os.path.join(place, f)))
    return found


def package_tree(one, tree):
    """The packages of a source tree, not its tests and tools beside them."""
    tops = (one.read_text("top_level.txt") or "").split()
    places = [os.path.join(tree, *sub, top) for top in tops for sub in ((), ("python",), ("src",))]
    found = [p for p in places if os.path.isdir(p)]
    return found or [tree]


def fault_of(path):
    """What keeps one file from compiling, None if nothing does."""
    try:
        with open(path, "rb") as file:
            source = file.read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = error.lineno or None
        return fault(path, line, error.offset, f"{type(error).__name__}: {error.msg}", error.text, near(source, line))
    except (ValueError, RecursionError, MemoryError) as error:
        # A null byte, or nesting that the compiler gives up on.
        return fault(path, None, None, f"{type(error).__name__}: {error}", "", [])
    except OSError:
        return None
    return None


def fault(path, line, column, message, text, lines):
    return {
        "path": path,
        "line": line,
        "column": column,
        "message": message,
        "text": (text or "").rstrip()[:500],
        "near": lines,
    }


def near(source, line):
    if not line:
        return []
    lines = source.decode("utf-8", "replace").splitlines()
    first = max(1, line - BEFORE)
    return [[n, lines[n - 1][:200]] for n in range(first, min(len(lines), line + AFTER) + 1)]


def main():
    deep = "--deep" in sys.argv
    changes, doubtful, unverifiable, files = [], [], {}, 0
    for name in (a for a in sys.argv[1:] if not a.startswith("--")):
        one = distribution(name)
        if one is None:
            continue
        tree = editable_of(one)
        if tree:
            unverifiable[name] = f"editable install of {tree}: git status there says what was changed"
            doubtful.extend(path for top in package_tree(one, tree) for path in stale_sources(top))
        elif not one.read_text("RECORD"):
            unverifiable[name] = "installed without a RECORD (a distribution's package manager, or setup.py)"
        else:
            more, count, to_compile = verify(one, deep)
            changes += more
            files += count
            doubtful += to_compile
    doubtful = list(dict.fromkeys(doubtful))[:MAX_COMPILED]
    result = {
        "files": files,
        "compiled": len(doubtful),
        "hashed_all": deep,
        "changes": changes[:MAX_CHANGES],
        "faults": [f for f in map(fault_of, doubtful) if f][:MAX_CHANGES],
        "unverifiable": unverifiable,
    }
    answer = {"schema": SCHEMA, "probe": "verify_packages", "ok": True, "verification": result}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
