"""NCCL's service: real answers of NCCL 2.28.9, good and broken ones, over a socket of our own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from gpudiag.collect.ras import address_of, parse, query
from gpudiag.model.reading import Failed, Ok, Unavailable

RANK0 = """
        {
          "rank": 0, "host": "192.0.2.2", "pid": 1214, "cuda_dev": 0, "nvml_dev": 0,
          "status": {"init_state": 0, "async_error": 0, "finalize_called": false, "destroy_flag": false, "abort_flag": false},
          "collective_counts": {"Broadcast": 0, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": 21}
        }"""
ANSWER = f"""{{
  "nccl_version": "2.28.9", "communicators_count": 1,
  "communicators": [
    {{
      "hash": "0xd2af3a975a173e5c", "size": 2, "ranks_count": 1, "missing_ranks_count": 1,
      "ranks": [{RANK0}
      ],
      "missing_ranks": [
        {{
          "rank": 1,
          "host": "192.0.2.2",
          "pid": 1215,
          "cuda_dev": 1,
          "nvml_dev": 1
          "status": {{
            "unresponsive": true,
            "considered_dead": false
          }}
        }}
      ]
    }}
  ],
  "ras": {{"collection_time_sec": 0.000, "timeouts_count": 0}}
}}
"""
"""As 2.28.9 writes it with a rank that was killed: the comma after nvml_dev is missing."""


@contextlib.contextmanager
def service(*lines: bytes, body: bytes = b"", hang: bool = False) -> Iterator[tuple[str, int]]:
    """Answers each line it gets with the next of `lines`, and the last one with `body`; with `hang` it then stays silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as heard:
                for line in lines:
                    heard.readline()
                    connection.sendall(line)
                heard.readline()
                connection.sendall(body)
                if hang:
                    done.wait(20)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[:2]
        done.set()
        thread.join(20)


HELLO = (b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n")


def test_an_answer_over_the_socket_with_its_broken_json_repaired() -> None:
    with service(*HELLO, body=ANSWER.encode()) as address:
        reading = query(address)
    assert isinstance(reading, Ok)
    answer = reading.value
    (communicator,) = answer.communicators
    assert (communicator.hash, communicator.size, communicator.pids) == ("0xd2af3a975a173e5c", 2, {0: 1214})
    (missing,) = communicator.missing
    assert (missing.rank, missing.pid, missing.unresponsive, missing.dead) == (1, 1215, True, False)
    (nccl,) = answer.nccl(1214)
    assert (nccl.source, nccl.version, nccl.communicators[0].launched) == ("ras", "2.28.9", (0, 0, 0, 0, 21))
    assert answer.nccl(1) == ()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()[:2]
    reading = query(address)
    assert isinstance(reading, Unavailable)
    assert "nobody listens" in reading.reason


def test_a_service_that_stays_silent_costs_its_budget_and_no_more() -> None:
    with service(*HELLO, hang=True) as address:
        reading = query(address, budget_s=1.0)
    assert isinstance(reading, Failed)
    assert "did not answer within 1 s" in reading.error


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"nccl_version": "2", "communicators": [{"ranks": 3}]}', b"\xff"])
def test_nonsense_is_said_to_be_nonsense(body: bytes) -> None:
    with service(*HELLO, body=body) as address:
        reading = query(address)
    assert isinstance(reading, Failed)


def test_a_service_too_old_for_json_says_so() -> None:
    with service(b"SERVER PROTOCOL 2\n", b"OK\n", b"ERROR: Unknown command\n") as address:
        reading = query(address)
    assert isinstance(reading, Failed)
    assert "JSON needs NCCL 2.28.7" in reading.error


def test_where_a_process_listens() -> None:
    assert address_of({}) == ("localhost", 28028)
    assert address_of({"NCCL_RAS_ADDR": "localhost:29000"}) == ("localhost", 29000)
    assert address_of({"NCCL_RAS_ADDR": "[::1]:29001"}) == ("::1", 29001)
    assert address_of({"NCCL_RAS_ADDR": "29002"}) == ("localhost", 29002)


def test_correct_json_is_left_alone() -> None:
    repaired = ANSWER.replace('"nvml_dev": 1\n', '"nvml_dev": 1,\n')
    assert parse(repaired.encode()) == parse(ANSWER.encode())
