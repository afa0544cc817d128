"""Memory pools that lend each other pages. Two threads take two locks in opposite order."""

from __future__ import annotations

import threading
from concurrent.futures import Executor

from .settings import Settings


class PagePool:
    """Pages under one lock. `move_pages` takes the lock of the source, then that of the target."""

    def __init__(self, reentrant: bool) -> None:
        self.guard = threading.RLock() if reentrant else threading.Lock()
        self.pages = 64

    def move_pages(self, target: PagePool, both_inside: threading.Barrier) -> None:
        with self.guard:
            both_inside.wait()
            with target.guard:
                self.pages -= 1
                target.pages += 1


class Index:
    """Says which page belongs to which request, under a lock of its own."""

    def __init__(self, reentrant: bool, pool: PageStore) -> None:
        self.index_guard = threading.RLock() if reentrant else threading.Lock()
        self.pool = pool

    def drop_request(self, both_inside: threading.Barrier) -> None:
        with self.index_guard:
            both_inside.wait()
            self.pool.free_page()

    def forget_page(self) -> None:
        with self.index_guard:
            self.pool.free_pages += 1


class PageStore:
    """The free pages, under a lock of their own."""

    def __init__(self, reentrant: bool) -> None:
        self.store_guard = threading.RLock() if reentrant else threading.Lock()
        self.free_pages = 64

    def free_page(self) -> None:
        with self.store_guard:
            self.free_pages += 1

    def compact_pages(self, index: Index, both_inside: threading.Barrier) -> None:
        with self.store_guard:
            both_inside.wait()
            index.forget_page()


def cross_pools(settings: Settings, executor: Executor) -> None:
    """Do two operations at once, in this thread and in the pool's, that take the same two locks in opposite order."""
    both_inside = threading.Barrier(2)
    reentrant = settings.chooses(0)
    if settings.chooses(1):
        left, right = PagePool(reentrant), PagePool(reentrant)
        executor.submit(right.move_pages, left, both_inside)
        left.move_pages(right, both_inside)
        return
    store = PageStore(reentrant)
    index = Index(reentrant, store)
    executor.submit(store.compact_pages, index, both_inside)
    index.drop_request(both_inside)
