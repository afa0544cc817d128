"""Blocks threads in one of many ways, prints the addresses of the locks in play and waits for its standard input to close."""
# mypy: ignore-errors

import functools
import importlib
import json
import logging
import os
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

GLOBAL = threading.Lock()
lock = threading.Lock()
LOCKS = [threading.Lock(), threading.Lock()]
TABLE = {"a": threading.Lock()}


def taken():
    result = threading.Lock()
    result.acquire()
    return result


never = taken()


class Account:
    def __init__(self):
        self._lock = threading.Lock()
        self.__private = threading.RLock()
        self.other = None

    def transfer(self, other, both):
        with self._lock:
            both.wait()
            other.deposit()

    def deposit(self):
        with self._lock:
            pass

    def private(self):
        return self.__private

    def hold_private(self):
        with self.__private, never:
            pass

    def wait_private(self):
        with self.__private:
            pass


class Slotted:
    __slots__ = ("guard",)

    def __init__(self):
        self.guard = threading.Lock()

    def run(self):
        self.guard.acquire()
        try:
            never.acquire()
        finally:
            self.guard.release()

    def wait(self):
        self.guard.acquire()


class Pool:
    def __init__(self):
        self.locks = [threading.Lock(), threading.Lock()]


class Service:
    lock = threading.RLock()

    def __init__(self):
        self.pool = Pool()

    def nested(self):
        with self.pool.locks[0], self.pool.locks[-1]:
            never.acquire()


def start(function, *arguments, name):
    thread = threading.Thread(target=function, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


def cycle(first, second, prefix=""):
    both = threading.Barrier(2)
    start(first.transfer, second, both, name=prefix + "forward")
    start(second.transfer, first, both, name=prefix + "backward")


def ab_ba():
    first, second = Account(), Account()
    cycle(first, second)
    return {"first": first._lock, "second": second._lock}


def two_pairs():
    accounts = [Account() for _ in range(4)]
    cycle(*accounts[:2], prefix="one ")
    cycle(*accounts[2:], prefix="two ")
    return {f"lock {i}": account._lock for i, account in enumerate(accounts)}


def rlock_owner():
    account = Account()
    start(account.hold_private, name="owner")
    start(account.wait_private, name="waiter")
    return {"private": account.private(), "never": never}


def several_items():
    def first():
        with LOCKS[0], LOCKS[1]:
            never.acquire()

    def second():
        with GLOBAL, LOCKS[0]:
            pass

    def third():
        with (
            TABLE["a"],
            lock,
            LOCKS[1],
        ):
            pass

    for name, function in (("first", first), ("second", second), ("third", third)):
        start(function, name=name)
    return {"zero": LOCKS[0], "one": LOCKS[1], "global": GLOBAL, "table": TABLE["a"], "lock": lock, "never": never}


def acquire_release():
    def released():
        GLOBAL.acquire()
        GLOBAL.release()
        never.acquire()

    def holds():
        LOCKS[0].acquire()
        try:
            GLOBAL.acquire(False)
            GLOBAL.acquire(timeout=0)
            never.acquire()
        finally:
            LOCKS[0].release()

    def done():
        LOCKS[1].acquire()
        try:
            str(1)
        finally:
            LOCKS[1].release()
        never.acquire()

    def polite():
        if not lock.acquire(timeout=60):
            return
        never.acquire()

    for name, function in (("released", released), ("holds", holds), ("done", done), ("polite", polite)):
        start(function, name=name)
    return {"zero": LOCKS[0], "one": LOCKS[1], "global": GLOBAL, "lock": lock, "never": never}


def condition_wait():
    condition = threading.Condition()
    event = threading.Event()
    items = queue.Queue()
    ready = threading.Barrier(2)

    def waits():
        with condition:
            condition.wait()

    def sets():
        event.wait()

    def gets():
        items.get()

    def holds():
        with condition:
            ready.wait()
            never.acquire()

    def wants():
        with condition:
            pass

    start(waits, name="waits")
    start(sets, name="sets")
    start(gets, name="gets")
    start(holds, name="holds")
    ready.wait()
    start(wants, name="wants")
    return {"condition": condition._lock, "mutex": items.mutex, "event": event._cond._lock, "never": never}


def notified():
    condition = threading.Condition(threading.Lock())
    waiting = threading.Event()

    def waits():
        with condition:
            waiting.set()
            condition.wait()

    def holds():
        waiting.wait()
        with condition:
            condition.notify()
            never.acquire()

    start(waits, name="waits")
    start(holds, name="holds")
    return {"condition": condition._lock, "never": never}


def semaphore():
    gate = threading.BoundedSemaphore(1)
    inside = threading.Event()

    def holds():
        with gate:
            inside.set()
            never.acquire()

    def wants():
        gate.acquire()

    start(holds, name="holds")
    inside.wait()
    start(wants, name="wants")
    return {"gate": gate, "never": never}


def module_global():
    def hold():
        with GLOBAL:
            inside.set()
            never.acquire()

    inside = threading.Event()
    start(hold, name="holds")
    inside.wait()
    start(take_global, name="wants")
    start(take_shadowed, name="shadowed")
    return {"global": GLOBAL, "never": never}


def take_global():
    with GLOBAL:
        pass


def take_shadowed():
    def inner():
        # The name of a global, but the variable of the function around.
        with lock:
            pass

    lock = GLOBAL
    return inner()


def loaded_twice():
    again = importlib.import_module("locks")
    again.GLOBAL.acquire()
    GLOBAL.acquire()
    start(take_global, name="script")
    start(again.take_global, name="module")
    # Neither function is at hand in a frame above these.
    threading.Thread(target=lambda: [take_global()], name="hidden", daemon=True).start()
    return {"of the script": GLOBAL, "of the module": again.GLOBAL}


def slots():
    slotted = Slotted()
    start(slotted.run, name="holds")
    while not slotted.guard.locked():
        os.sched_yield()
    start(slotted.wait, name="wants")
    return {"guard": slotted.guard, "never": never}


def nested_attributes():
    service = Service()
    start(service.nested, name="holds")
    return {"first": service.pool.locks[0], "last": service.pool.locks[-1], "never": never}


def closures():
    inner_lock = threading.Lock()

    def locked(function):
        @functools.wraps(function)
        def wrapper(*arguments):
            with inner_lock:
                return function(*arguments)

        return wrapper

    @locked
    def work():
        never.acquire()

    start(work, name="holds")
    while not inner_lock.locked():
        os.sched_yield()
    start(functools.partial(work), name="wants")
    return {"inner": inner_lock, "never": never}


def pool():
    executor = ThreadPoolExecutor(2, thread_name_prefix="worker")
    inside = threading.Event()

    def task():
        with GLOBAL:
            inside.set()
            never.acquire()

    executor.submit(task)
    inside.wait()
    executor.submit(task)
    return {"global": GLOBAL, "never": never}


def logs():
    class Stuck(logging.Handler):
        def emit(self, record):  # noqa: ARG002
            inside.set()
            never.acquire()

    inside = threading.Event()
    handler = Stuck()
    logger = logging.getLogger("stuck")
    logger.addHandler(handler)
    start(logger.warning, "one", name="holds")
    inside.wait()
    start(logger.warning, "two", name="wants")
    return {"handler": handler.lock, "never": never}


def signals():
    signal = threading.Semaphore(0)
    start(signal.acquire, name="listens")
    start(listens, signal, name="listens too")
    return {"signal": signal}


def listens(signal):
    with signal:
        pass


def busy():
    def joins():
        started.join()

    def computes():
        with GLOBAL:
            while True:
                pass

    started = start(never.acquire, name="ends never")
    start(joins, name="joins")
    start(computes, name="computes")
    return {"global": GLOBAL, "never": never}


def itself():
    def again():
        with GLOBAL:
            take_global()

    start(again, name="again")
    return {"global": GLOBAL}


def crowd():
    accounts = [Account() for _ in range(60)]
    for first, second in zip(accounts[::2], accounts[1::2], strict=True):
        cycle(first, second)
    return {f"lock {i}": account._lock for i, account in enumerate(accounts)}


def main(scenarios):
    locks = scenarios[sys.argv[1]]()
    said = {name: value if isinstance(value, list) else id(value) for name, value in locks.items()}
    print(json.dumps(said), flush=True)
    os.read(0, 1)


if __name__ == "__main__":
    main(globals())
