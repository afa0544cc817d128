"""Polls for a file in one of many ways, says which path it waits for, and goes on until it is killed."""
# mypy: ignore-errors

import functools
import json
import os
import os.path as osp
import sys
import threading
import time
from os.path import exists
from pathlib import Path

SHORT_S = 0.005
MISSING = "/nonexistent/gpudiag/module"


class Baton:
    """The loop of torch.utils.file_baton.FileBaton (torch 2.9)."""

    def __init__(self, lock_file_path, wait_seconds=SHORT_S):
        self.lock_file_path = lock_file_path
        self.wait_seconds = wait_seconds

    def wait(self):
        has_warned = False
        start_time = time.time()
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            if not has_warned and time.time() - start_time > 600:
                has_warned = True


class Store:
    def exists(self, key):
        return key == ""


def baton(path):
    Baton(path).wait()


def local(path):
    name = path + ".done"
    while not os.path.exists(name):
        time.sleep(SHORT_S)


def module_variable(_path):
    while not osp.isfile(MISSING):
        time.sleep(SHORT_S)


def pathlib_path(path):
    wanted = Path(path) / "sub" / "file"
    while not wanted.exists():
        time.sleep(SHORT_S)


def joined(path):
    build = {"directory": path + "-build"}
    while True:
        if exists(os.path.join(build["directory"], "lock")):
            break
        time.sleep(SHORT_S)


def formatted(path):
    rank = 3
    while not os.access(f"{path}.rank{rank}", os.R_OK):
        time.sleep(SHORT_S)


def relative(_path):
    while not os.path.lexists("some/where/flag"):
        time.sleep(SHORT_S)


def by_exception(path):
    while True:
        try:
            os.stat(path + ".never")
            break
        except FileNotFoundError:
            time.sleep(SHORT_S)


def exclusive(path):
    while True:
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            time.sleep(SHORT_S)
        else:
            break
    os.close(fd)


def event_sleep(path):
    stop = threading.Event()
    while not stop.is_set() and os.path.exists(path):
        stop.wait(SHORT_S)


def closure(path):
    def wait():
        while os.path.exists(path):
            time.sleep(SHORT_S)

    wait()


def working(path):
    while os.path.exists(path):
        step()


def step():
    deadline = time.monotonic() + SHORT_S
    while time.monotonic() < deadline:
        pass


def store(_path):
    kept = Store()
    key = "/not/a/file"
    while not kept.exists(key):
        time.sleep(SHORT_S)


def asleep(path):
    while not os.path.exists(path):
        pass
    while True:
        time.sleep(SHORT_S)


def main():
    path = sys.argv[2]
    thread = threading.Thread(target=functools.partial(globals()[sys.argv[1]], path), name="poller", daemon=True)
    thread.start()
    print(json.dumps(path), flush=True)
    sys.stdin.read()


main()
