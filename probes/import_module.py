"""Imports modules, each in a child of this interpreter, and says where the first failure is, however the child ends.

needs: site; what the module itself needs
timeout: the sum of --limit (120 s each by default) and 10 s
writes: what importing the module writes

Arguments: [--limit SECONDS] module names. The child tells each module before it runs it, so that a crash, a hang or
os._exit still shows which one was being imported, and by whom.
"""

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

SCHEMA = "gpudiag.probe/1"
PRCTL = ctypes.CDLL(None).prctl
PR_SET_PDEATHSIG = 1
MAX_TRACE = 32 << 20
MAX_TEXT = 4000

CHILD = r"""
import faulthandler, importlib, importlib.machinery, json, os, sys, time, traceback

name, limit, pipe = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
sys.path[:] = [p for p in sys.path if p]
faulthandler.enable()
faulthandler.dump_traceback_later(limit, exit=True)


def tell(text):
    os.write(pipe, (text + "\n").encode("utf-8", "replace"))


class Loader:
    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        create = getattr(self.loader, "create_module", None)
        return create(spec) if create else None

    def exec_module(self, module):
        tell("> " + module.__name__)
        self.loader.exec_module(module)
        tell("< " + module.__name__)

    def __getattr__(self, name):
        return getattr(self.loader, name)


class Finder:
    def find_spec(self, name, path=None, target=None):
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is None:
                continue
            if isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
                tell("! %s %s" % (name, spec.origin))
            elif hasattr(spec.loader, "exec_module"):
                spec.loader = Loader(spec.loader)
            return spec
        return None


def chain(error):
    found, seen = [], set()
    while error is not None and id(error) not in seen and len(found) < 20:
        seen.add(id(error))
        frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]
        frames = [f for f in frames if "importlib" not in f[0] and f[0] not in ("<string>", "<stdin>")]
        one = {"type": type(error).__name__, "message": str(error)[:4000], "frames": frames[-12:]}
        if isinstance(error, SyntaxError):
            one.update(file=error.filename, line=error.lineno, text=(error.text or "").rstrip()[:500])
        elif isinstance(error, ImportError):
            one.update(file=error.path)
        found.append(one)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


sys.meta_path.insert(0, Finder())
started = time.perf_counter()
try:
    importlib.import_module(name)
    result = {"chain": []}
except BaseException as error:
    result = {"chain": chain(error)}
result["took_s"] = round(time.perf_counter() - started, 3)
tell("= " + json.dumps(result))
os._exit(0)
"""


def die_with_parent():
    """Runs in a child before its program: the kernel ends it when this probe is killed, whatever session it is in."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(module, limit):
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [sys.executable, "-B", "-c", CHILD, module, str(limit), str(writer)],
            pass_fds=[writer],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd="/",
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509  a probe has one thread
        )
        os.close(writer)
        started = time.monotonic()
        trace = listen(reader, child, started + limit + 5)
        end(child)
        said.seek(0)
        text = said.read(1 << 20).decode("utf-8", "replace")
    return describe(module, child.returncode, trace, text, time.monotonic() - started)


def listen(reader, child, due):
    """What the child tells until it is done, dead or late. A grandchild may hold the pipe open after it."""
    trace = bytearray()
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while time.monotonic() < due and len(trace) < MAX_TRACE:
            if not select.select([pipe], [], [], 0.2)[0]:
                if child.poll() is not None:
                    break
                continue
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                break
            trace += piece
            if b"\n= " in trace[-(1 << 17) :] and trace.endswith(b"\n"):
                break
    return trace.decode("utf-8", "replace")


def end(child):
    """Wait for the status of a child that is done, and kill whatever of its session is not."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def describe(module, status, trace, text, took_s):
    stack, extension, result = [], None, None
    for line in trace.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == ">":
            stack.append(rest)
        elif kind == "<" and rest in stack:
            del stack[stack.index(rest) :]
        elif kind == "!":
            extension = rest
        elif kind == "=":
            result = json.loads(rest)
    found = {"module": module, "took_s": round(took_s, 3), "stderr": text[-MAX_TEXT:], "ignored": ignored(text)}
    if result is not None:
        found.update(chain=result["chain"], took_s=result["took_s"], outcome="exception" if result["chain"] else "ok")
        found["in_progress"] = stack[-20:] if result["chain"] else []
        return found
    found.update(in_progress=stack[-20:], extension=extension)
    if "Timeout (" in text or status == -signal.SIGKILL:
        found.update(outcome="hung")
    elif status < 0:
        found.update(outcome="killed", signal=signal.Signals(-status).name)
    else:
        found.update(outcome="exited", exit_status=status)
    return found


def ignored(text):
    """What an engine said about modules it went on without: sglang/srt/models/registry.py."""
    return re.findall(r"Ignore import error when loading [^\n]{1,500}", text)[:200]


def main():
    arguments = sys.argv[1:]
    limit = 120.0
    if arguments[:1] == ["--limit"]:
        limit = float(arguments[1])
        arguments = arguments[2:]
    imports = [run(module, limit) for module in arguments]
    sys.stdout.write(json.dumps({"schema": SCHEMA, "probe": "import_module", "ok": True, "imports": imports}) + "\n")


if __name__ == "__main__":
    main()
