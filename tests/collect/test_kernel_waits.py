"""What threads sleep on in the kernel: mutexes with owners, semaphores, polled descriptors."""

from __future__ import annotations

import struct

import pytest

from gpudiag.collect.futex import futex_waits
from gpudiag.collect.look import LookOptions, look
from gpudiag.collect.polls import polled_fds
from gpudiag.model.process import FutexWait, Syscall
from gpudiag.model.reading import Ok, Unavailable
from tests.collect.helpers import Program, program
from tests.support.processes import wait_until

PLAIN = LookOptions(stacks="none", locals=False)

MUTEXES = """
import ctypes
libc = ctypes.CDLL(None)
protocol = int(sys.argv[1])
attributes = ctypes.create_string_buffer(64)
libc.pthread_mutexattr_init(attributes)
assert libc.pthread_mutexattr_setprotocol(attributes, protocol) == 0
first, second = (ctypes.create_string_buffer(64) for _ in range(2))
for mutex in (first, second):
    libc.pthread_mutex_init(mutex, attributes)
barrier = threading.Barrier(3)
def take(mine, other):
    libc.pthread_mutex_lock(mine)
    barrier.wait()
    libc.pthread_mutex_lock(other)
    wait()
# The kernel itself refuses a cycle of priority-inheriting mutexes: there the second thread waits and the first does not.
third = second if protocol == 0 else ctypes.create_string_buffer(64)
threads = [threading.Thread(target=take, args=pair, daemon=True) for pair in ((first, third), (second, first))]
for thread in threads:
    thread.start()
barrier.wait()
ready(*(t.native_id for t in threads), *(ctypes.addressof(m) for m in (first, second)))
wait()
"""
PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT = 0, 1


def owners(target: Program) -> dict[int, tuple[int, int | None]]:
    """By thread, the futex it sleeps on and who owns that."""
    process = look([target.pid], PLAIN).process(target.pid)
    assert process is not None
    assert isinstance(process.futexes, Ok)
    return {w.tid: (w.address, w.owner_tid) for w in process.futexes.value}


def test_a_mutex_with_priority_inheritance_names_its_owner() -> None:
    with program(MUTEXES, str(PTHREAD_PRIO_INHERIT)) as target:
        one, other, first, _ = target.said
        wait_until(lambda: owners(target).get(other) == (first, one), "the owner")


def test_two_mutexes_taken_in_opposite_order_name_their_owners() -> None:
    with program(MUTEXES, str(PTHREAD_PRIO_NONE)) as target:
        one, other, first, second = target.said
        expected = {one: (second, other), other: (first, one)}
        wait_until(lambda: owners(target).items() >= expected.items(), f"the owners {expected}")


def test_a_semaphore_has_no_owner() -> None:
    code = """
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lock.acquire, daemon=True)
    thread.start()
    ready(thread.native_id)
    wait()
    """
    with program(code) as target:
        (tid,) = target.said
        wait_until(lambda: tid in owners(target), "the thread in its futex")
        assert owners(target)[tid][1] is None


POLLERS = """
import select, socket
reader, writer = os.pipe()
sock, peer = socket.socketpair()
epoll = select.epoll()
epoll.register(reader, select.EPOLLIN)
epoll.register(sock, select.EPOLLIN)
poll = select.poll()
poll.register(reader, select.POLLIN)
poll.register(sock, select.POLLIN)
targets = (lambda: select.select([reader, sock], [], []), poll.poll, epoll.poll, lambda: os.read(reader, 1))
threads = [threading.Thread(target=t, daemon=True) for t in targets]
for thread in threads:
    thread.start()
ready([t.native_id for t in threads], [reader, sock.fileno()])
wait()
"""


def polls(target: Program, tids: list[int]) -> dict[int, tuple[int, ...] | None]:
    """What each thread polls, once all of them are inside a system call."""
    process = look([target.pid], PLAIN).process(target.pid)
    assert process is not None
    assert isinstance(process.polls, Ok)
    assert isinstance(process.syscalls, Ok)
    return {tid: process.polls.value.get(tid) for tid in tids if tid in process.syscalls.value}


def test_polled_descriptors_are_those_asked_for() -> None:
    with program(POLLERS) as target:
        tids, fds = target.said
        *pollers, reader = tids
        expected = {**dict.fromkeys(pollers, tuple(sorted(fds))), reader: None}
        wait_until(lambda: polls(target, tids) == expected, f"the descriptors {expected}")


class FakeMemory:
    """Memory that holds what a test put there; everything else is unmapped."""

    def __init__(self, content: dict[int, bytes]) -> None:
        self.content = content

    def read(self, address: int, size: int) -> bytes:
        for start, data in self.content.items():
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise OSError(5, "not mapped")


def wait_for(call: Syscall, content: dict[int, bytes]) -> tuple[FutexWait, ...]:
    return futex_waits({7: call}, {7, 8}, {7: 7, 8: 8}, FakeMemory(content))  # type: ignore[arg-type]


def futex(operation: int, expected: int, address: int = 0x1000) -> Syscall:
    return Syscall(number=202, name="futex", args=(address, operation, expected, 0, 0, 0))


@pytest.mark.parametrize(
    ("operation", "expected", "word", "owner", "believed"),
    [
        (0x80, 2, 2, 8, 8),
        (0, 2, 2, 8, 8),
        (0x80, 2, 2, 99, None),
        (0x80, 2, 1, 8, None),
        (0x80, 0, 0, 8, None),
        (0x189, 2, 2, 8, None),
        (0x86, 0, 0x80000008, 0, 8),
        (0x86, 0, 0x80000063, 0, None),
    ],
)
def test_an_owner_is_believed_only_for_a_mutex_and_a_thread_of_the_process(
    operation: int, expected: int, word: int, owner: int, believed: int | None
) -> None:
    (wait,) = wait_for(futex(operation, expected), {0x1000: struct.pack("<III", word, 1, owner)})
    assert wait.word == word
    assert wait.owner_tid == believed


def test_wakers_and_unmapped_words_are_no_waits() -> None:
    assert wait_for(futex(0x81, 1), {0x1000: bytes(12)}) == ()
    assert wait_for(futex(0x80, 2), {}) == ()


def test_the_first_of_many_futexes_is_reported() -> None:
    call = Syscall(number=449, name="futex_waitv", args=(0x2000, 2, 0, 0, 0, 0))
    entry = struct.pack("<QQII", 5, 0x1000, 2, 0)
    (wait,) = wait_for(call, {0x2000: entry * 2, 0x1000: struct.pack("<I", 5)})
    assert (wait.address, wait.expected, wait.word) == (0x1000, 5, 5)
    assert wait_for(Syscall(number=449, name="futex_waitv", args=(0x2000, 1 << 30, 0, 0, 0, 0)), {}) == ()


@pytest.mark.parametrize("count", [0, 1 << 40])
def test_a_hostile_poll_count_is_not_followed(count: int) -> None:
    call = Syscall(number=7, name="poll", args=(0x1000, count, 0, 0, 0, 0))
    assert polled_fds({7: call}, {}, FakeMemory({})) == {7: ()}  # type: ignore[arg-type]


def test_withheld_memory_is_unavailable() -> None:
    with program("ready()\nwait()") as target:
        options = LookOptions(stacks="none", locals=False, withhold=frozenset({"memory"}))
        process = look([target.pid], options).process(target.pid)
        assert process is not None
        assert isinstance(process.futexes, Unavailable)
        assert isinstance(process.polls, Unavailable)
        assert isinstance(process.syscalls, Ok)
