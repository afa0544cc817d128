"""Says what is installed in this interpreter and where import names lead, without importing any of it.

needs: site
timeout: 30 s (metadata of some hundred distributions)
writes: none

Arguments: import names to look up. Answer: "environment", "pins" (requirements that are not met; null without a parser for
them), "copies" (names that several distributions or directories provide), "built" (compiled libraries that loaders search).
"""

import fnmatch
import glob
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import re
import sys

SCHEMA = "gpudiag.probe/1"

LOADERS = {
    # sgl_kernel/load_utils.py of sglang-kernel 0.4.10 and sgl-kernel 0.3.21: glob beside __file__, one directory per GPU kind,
    # then the package's own directory.
    "sgl_kernel": ["sm[0-9]*/common_ops.*", "common_ops.*"],
}
ENGINES = ("sglang", "vllm", "sglang-kernel", "sgl-kernel", "flashinfer-python", "torch")
MAX_FILES = 50


def canonical(name):
    return re.sub(r"[-_.]+", "-", name or "").lower()


def read_text(path, limit=1 << 20):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except OSError:
        return ""


def distributions():
    """Name and distribution, in the order of the path: of several of one name, importlib.metadata answers with the first."""
    return [(name, one) for one in importlib.metadata.distributions() if (name := name_of(one))]


def name_of(one):
    try:
        return one.metadata["Name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def editable_of(one):
    try:
        url = json.loads(one.read_text("direct_url.json") or "null")
    except ValueError:
        return None
    if not isinstance(url, dict) or not (url.get("dir_info") or {}).get("editable"):
        return None
    return re.sub(r"^file://", "", str(url.get("url")))


def top_names(one):
    """Import names: from RECORD, which also knows packages that top_level.txt leaves out. Its rows are not parsed in full."""
    names = set((one.read_text("top_level.txt") or "").split())
    for row in (one.read_text("RECORD") or "").splitlines():
        first, slash, _ = row.partition(",")[0].strip('"').partition("/")
        if slash:
            names.add(first)
        elif first.endswith(".py"):
            names.add(first[:-3])
    return sorted(n for n in names - {"bin", "__pycache__"} if n.isidentifier())


def describe(name, one):
    return {
        "name": name,
        "version": one.version or "",
        "where": str(getattr(one, "_path", "")),
        "editable": editable_of(one),
        "packages": top_names(one),
    }


def look_up(name):
    """find_spec of a top-level name runs finders, but nothing of the package."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return {"name": name, "origin": None, "locations": []}
    origin = spec.origin if spec.origin not in ("namespace", "built-in", "frozen") else None
    return {"name": name, "origin": origin, "locations": [str(p) for p in spec.submodule_search_locations or []]}


def torch_facts(packages):
    origin = next((p["origin"] for p in packages if p["name"] == "torch"), None)
    if not origin:
        return None, None
    home = os.path.dirname(origin)
    cuda = re.search(r"^cuda(?::[^=]*)?\s*=\s*['\"]([\d.]+)['\"]", read_text(os.path.join(home, "version.py")), re.MULTILINE)
    baton = read_text(os.path.join(home, "utils", "file_baton.py"))
    by_existence = "flock" not in baton and "lockf" not in baton if "FileBaton" in baton else None
    return (cuda.group(1) if cuda else None), by_existence


def requirement_parser():
    """packaging, or pip's copy of it: environments without either are rare, and then nothing is said about pins."""
    for name in ("packaging", "pip._vendor.packaging"):
        if parse := parser_of(name):
            return parse
    return None


def parser_of(name):
    try:
        return importlib.import_module(name + ".requirements").Requirement
    except ImportError:
        return None


def pins(found):
    parse = requirement_parser()
    if parse is None:
        return None
    versions = {}
    for name, one in found:
        versions.setdefault(canonical(name), one.version)
    wanted = [(name, text) for name, one in found if canonical(name) in ENGINES for text in one.requires or ()]
    return [unmet for name, text in wanted if (unmet := unmet_of(parse, name, text, versions))]


def unmet_of(parse, name, text, versions):
    try:
        wanted = parse(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            return None
        have = versions.get(canonical(wanted.name))
        met = have is not None and wanted.specifier.contains(have, prereleases=True)
    except Exception:
        # A requirement or version that this parser does not understand says nothing.
        return None
    return None if met else {"distribution": name, "requirement": text, "package": wanted.name, "installed": have}


def copies(described, names):
    found = []
    for name in names:
        providers = {f"{d['name']} {d['version']}": 1 for d in described if name in d["packages"]}
        directories = list(dict.fromkeys(os.path.realpath(os.path.join(p, name)) for p in sys.path if is_package(p, name)))
        if len(providers) > 1:
            found.append({"package": name, "providers": list(providers)})
        elif len(directories) > 1:
            found.append({"package": name, "providers": directories})
    return found


def is_package(path, name):
    return os.path.isfile(os.path.join(path, name, "__init__.py"))


def built(described, packages):
    found = []
    for package in packages:
        patterns = LOADERS.get(package["name"])
        if not patterns or not package["origin"]:
            continue
        home = os.path.dirname(package["origin"])
        trees = [
            d["editable"]
            for d in described
            if d["editable"] and (package["name"] in d["packages"] or within(home, d["editable"]))
        ]
        trees += [os.path.dirname(home)] if trees else []
        loaded = first_match(home, patterns)
        others = elsewhere(package, patterns, home, trees)
        if not loaded and not others:
            continue
        found.append(
            {
                "package": package["name"],
                "pattern": " or ".join(patterns),
                "looked_in": home,
                "found": loaded,
                "elsewhere": others,
                "newer": [o for o in others for f in loaded if same_name(o, f) and later(o, f)],
                "wrong_suffix": [f for f in loaded if not importable(f)],
            }
        )
    return found


def within(path, directory):
    return os.path.realpath(path).startswith(os.path.realpath(directory) + os.sep)


def first_match(home, patterns):
    for pattern in patterns:
        hit = sorted(p for p in glob.glob(os.path.join(glob.escape(home), pattern)) if is_library(p))
        if hit:
            return hit[:MAX_FILES]
    return []


def is_library(path):
    return path.endswith((".so", ".pyd"))


def elsewhere(package, patterns, home, trees):
    """Libraries of that name below the package's other directories, other entries of the path, and build trees."""
    names = [os.path.basename(p) for p in patterns]
    places = [p for p in package["locations"] if os.path.realpath(p) != os.path.realpath(home)]
    places += [os.path.join(p, package["name"]) for p in sys.path if p]
    places += [os.path.join(t, "build") for t in trees]
    found = {}
    for place in dict.fromkeys(os.path.realpath(p) for p in places):
        if place == os.path.realpath(home) or not os.path.isdir(place):
            continue
        for top, _, files in os.walk(place):
            for file in files:
                if is_library(file) and any(fnmatch.fnmatch(file, n) for n in names):
                    found.setdefault(os.path.realpath(os.path.join(top, file)), 1)
    return list(found)[:MAX_FILES]


def same_name(one, other):
    return os.path.basename(one).split(".")[0] == os.path.basename(other).split(".")[0]


def later(one, other):
    try:
        return os.path.getmtime(one) > os.path.getmtime(other) + 1
    except OSError:
        return False


def importable(path):
    base = os.path.basename(path)
    return any(base == base.split(".")[0] + suffix for suffix in importlib.machinery.EXTENSION_SUFFIXES)


def main():
    names = sys.argv[1:]
    found = distributions()
    described = [describe(name, one) for name, one in found]
    packages = [look_up(name) for name in names]
    cuda, by_existence = torch_facts(packages)
    environment = {
        "python": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "prefix": sys.prefix,
        "path": [p for p in sys.path if p],
        "extension_suffixes": importlib.machinery.EXTENSION_SUFFIXES,
        "distributions": described,
        "packages": packages,
        "torch_cuda": cuda,
        "baton_by_existence": by_existence,
    }
    result = {
        "schema": SCHEMA,
        "probe": "describe_environment",
        "ok": True,
        "environment": environment,
        "pins": pins(found),
        "copies": copies(described, names),
        "built": built(described, packages),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
