"""Like locks.py, with locks inside other things: classes, context managers, several processes."""
# mypy: ignore-errors

import contextlib
import ctypes
import multiprocessing
import os
import threading

from locks import GLOBAL, LOCKS, main, never, start


class Guard:
    def __init__(self):
        self._inner = threading.Lock()
        self.entries = 0

    def __enter__(self):
        self.acquire()
        return self

    def acquire(self, blocking=True):
        return self._inner.acquire(blocking)

    def release(self):
        self._inner.release()

    def __exit__(self, *_):
        self.release()


class Owner:
    def __init__(self):
        self._mutex = threading.Lock()
        self.guard = Guard()

    @contextlib.contextmanager
    def exclusive(self):
        self._mutex.acquire()
        try:
            yield self
        finally:
            self._mutex.release()

    def run(self):
        with self.exclusive(), self.guard:
            never.acquire()

    def run_again(self):
        self.guard.acquire()
        self.guard.release()
        with shared(LOCKS[0], "x") as value:
            str(value)
            never.acquire()


@contextlib.contextmanager
def shared(some_lock, label):
    with GLOBAL, some_lock:
        yield label


def wrappers():
    owner = Owner()
    other = Owner()
    start(owner.run, name="first")
    start(other.run_again, name="second")
    while not (owner.guard._inner.locked() and GLOBAL.locked() and LOCKS[0].locked()):
        os.sched_yield()
    start(owner.run, name="wants")
    start(owner.run_again, name="wants guard")
    locks = {"mutex": owner._mutex, "guard": owner.guard._inner, "global": GLOBAL, "zero": LOCKS[0]}
    return {**locks, "never": never}


def processes():
    shared = multiprocessing.Lock()
    inside = threading.Event()

    def hold():
        with shared:
            inside.set()
            never.acquire()

    def want():
        with shared:
            pass

    start(hold, name="holds")
    inside.wait()
    start(want, name="wants")
    return {"shared": shared._semlock, "never": never}


def forked(function):
    """Run a function in a child of its own, which dies with this process."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=dies_with_parent, args=(function,), daemon=True)
    child.start()
    return child.pid


def dies_with_parent(function):
    ctypes.CDLL(None).prctl(1, 9)
    function()


def across_processes():
    across = multiprocessing.get_context("fork").Lock()
    inside, told = os.pipe()

    def hold():
        with across:
            os.write(told, b"x")
            never.acquire()

    def want():
        with across:
            pass

    children = [forked(hold)]
    os.read(inside, 1)
    start(want, name="wants")
    return {"across": across._semlock, "never": never, "children": children}


def idle_workers():
    work = multiprocessing.get_context("fork").Queue()
    return {"rlock": work._rlock._semlock, "children": [forked(work.get), forked(work.get)]}


main(globals())
