"""Says which options an engine's own command takes, by running that command up to the point where it reads its arguments.

needs: site
timeout: 120 s (it imports what the command imports before it reads arguments, most of the engine)
writes: none

Arguments: the module to run as `python -m` would, then the words that lead to the wanted parser (`serve`); `--ask NAME`
asks whether the engine knows an environment variable. Answer: "flags", "underscores", "dotted", "files" (the engine's own
modules that were read, with time and size: while they stay, the answer does), "variables", "recorder" (names in torch's
headers). What argparse holds is the only list that no release can forget to keep true.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import sys

SCHEMA = "gpudiag.probe/1"
PROBE = "describe_flags"
MODEL = ("--model", "--model-path")
MAX_TEXT = 400
MAX_CHOICES = 400
MAX_FLAGS = 5000
HEADERS = ("FlightRecorder.hpp", "ProcessGroupNCCL.hpp")
RECORDER = re.compile(r'"(TORCH_(?:FR|NCCL)_[A-Z_]+)"')


class Found(BaseException):
    """Carries the parser out of the command; no handler for ordinary exceptions stops it."""

    def __init__(self, parser):
        super().__init__()
        self.parser = parser


def capture(module, path):
    """The parser that `python -m module *path` reads its arguments with; None if it read none."""
    sys.argv = [module, *path]
    original = argparse.ArgumentParser.parse_known_args

    def parse(parser, args=None, namespace=None):
        wanted = descend(parser, path)
        # A library may read arguments of its own while it is imported.
        if any(name in MODEL for action in wanted._actions for name in (action.option_strings or [action.dest])):
            raise Found(wanted)
        return original(parser, args, namespace)

    argparse.ArgumentParser.parse_known_args = parse
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Found as found:
        return found.parser
    return None


def descend(parser, path):
    for word in path:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
                break
    return parser


def text_of(value):
    try:
        return str(value)[:MAX_TEXT]
    except Exception:
        # A default is an object of the engine: what its __str__ raises is its own business, and costs one word.
        return ""


def takes(action):
    if action.nargs == 0:
        return "none"
    if action.nargs == "?":
        return "optional"
    return "one" if action.nargs is None else "some"


def flag_of(action):
    choices = None
    if action.choices is not None and not isinstance(action, argparse._SubParsersAction):
        try:
            choices = [text_of(c) for c in list(action.choices)[:MAX_CHOICES]]
        except TypeError:
            choices = None
    kind = getattr(action.type, "__name__", "") if action.type is not None else ""
    return {
        "names": [text_of(n) for n in action.option_strings],
        "takes": takes(action),
        "choices": choices,
        "kind": text_of(kind),
        "default": "" if action.default in (None, argparse.SUPPRESS) else text_of(action.default),
    }


def files_of(package):
    found = []
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name.partition(".")[0] != package or not isinstance(path, str):
            continue
        try:
            status = os.stat(path)
        except OSError:
            continue
        found.append([path, status.st_mtime_ns, status.st_size])
    return found


def recorder():
    """Names of variables in torch's headers; torch is found, not imported."""
    try:
        spec = importlib.util.find_spec("torch")
        place = next(iter(spec.submodule_search_locations))
    except (AttributeError, ImportError, StopIteration, TypeError, ValueError):
        return []
    names = set()
    for header in HEADERS:
        path = os.path.join(place, "include", "torch", "csrc", "distributed", "c10d", header)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                names.update(RECORDER.findall(file.read(1 << 20)))
        except OSError:
            continue
    return sorted(names)


def known_variables(package, asked):
    """Those of the asked names that the engine's table of variables has; vLLM warns of any other that starts with VLLM_."""
    table = getattr(sys.modules.get(package + ".envs"), "environment_variables", None)
    if isinstance(table, dict):
        return [name for name in asked if name in table]
    known = getattr(sys.modules.get(package + ".srt.environ"), "envs", None)
    return [name for name in asked if known is not None and hasattr(known, name)]


def version_of(name):
    try:
        return importlib.metadata.version(name)
    except Exception:
        # Absent, or metadata that cannot be read: either way the version is not known.
        return None


def describe(module, path, asked):
    package = module.partition(".")[0]
    parser = capture(module, path)
    if parser is None:
        return {"ok": False, "error": f"{module} ended without reading its arguments"}
    # vLLM's parser takes names with underscores, and single keys of a JSON value as --flag.key.
    flexible = type(parser).__name__ == "FlexibleArgumentParser"
    return {
        "ok": True,
        "flags": [flag_of(a) for a in parser._actions[:MAX_FLAGS] if a.option_strings],
        "prefixes": bool(getattr(parser, "allow_abbrev", True)),
        "underscores": flexible,
        "dotted": flexible,
        "files": files_of(package),
        "variables": known_variables(package, asked),
        "recorder": recorder(),
        "torch": version_of("torch"),
        "version": version_of(package),
    }


def main():
    asked, words, rest = [], [], sys.argv[1:]
    while rest:
        word = rest.pop(0)
        if word == "--ask" and rest:
            asked.append(rest.pop(0))
        else:
            words.append(word)
    # What the engine prints must not come between the reader and the answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    try:
        result = describe(words[0], words[1:], asked) if words else {"ok": False, "error": "no module named"}
    except BaseException as error:
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        place = f" ({last.tb_frame.f_code.co_filename}:{last.tb_lineno})" if last is not None else ""
        result = {"ok": False, "error": f"{type(error).__name__}: {text_of(error)}{place}"}
    answer.write(json.dumps({"schema": SCHEMA, "probe": PROBE, **result}) + "\n")
    answer.flush()
    # Threads and children that the import started have nothing to finish.
    os._exit(0)


if __name__ == "__main__":
    main()
