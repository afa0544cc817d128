"""Every function that takes apart what a target, a file or another program wrote: real samples of it, and what it may raise."""

from __future__ import annotations

import functools
import gzip
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudiag.collect import (
    cuda_gdb,
    environ,
    flight_recorder_load,
    guarded_state,
    lock_table,
    maps,
    metrics,
    mounts,
    nvml_protocol,
    procfs,
    pylayout,
    pyspy_json,
    ras,
    xid,
)
from gpudiag.config import parse_toml
from gpudiag.doctor import drafter_files, fatbin, model_files
from gpudiag.drafter import conversations, log_lines, prompts
from gpudiag.errors import GpudiagError
from gpudiag.launch import history
from gpudiag.launch.profile import Profile
from gpudiag.logs import flight, grammar, pickles
from gpudiag.logs.facts import read_facts
from gpudiag.model.decoding import decode_json
from gpudiag.model.facts import Facts
from gpudiag.rules.kernels import runs_on
from gpudiag.session.load import load as load_recording
from gpudiag.tui import frame, rundir
from tests.collect.test_parsers import MAPS
from tests.doctor.checkpoints import drafter as write_drafter
from tests.doctor.checkpoints import target as write_target
from tests.logs.shapes import RAS, WATCHDOG, sglang_trace, watchdog_dump
from tests.support.checkout import ROOT

TESTS = ROOT / "tests"


class Parser(NamedTuple):
    """`reads` is called with damaged copies of `samples`. `raises` is what its callers expect of bad input."""

    name: str
    reads: Callable[[bytes], object]
    samples: tuple[bytes, ...]
    raises: tuple[type[Exception], ...] = ()


def own(path: str) -> bytes:
    return Path(f"/proc/self/{path}").read_bytes()


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def in_file(reads: Callable[[Path], object], name: str) -> Callable[[bytes], object]:
    """For a function that takes a path."""

    def read(data: bytes) -> object:
        with tempfile.TemporaryDirectory(prefix="gpudiag-fuzz-") as directory:
            path = Path(directory) / name
            path.write_bytes(data)
            return reads(path)

    return read


def in_model(name: str, reads: Callable[[Path], object]) -> Callable[[bytes], object]:
    """For a function that takes a directory, of which one file is damaged."""

    def read(data: bytes) -> object:
        with tempfile.TemporaryDirectory(prefix="gpudiag-fuzz-") as directory:
            place = write_target(Path(directory) / "model") if name != "drafter" else write_drafter(Path(directory) / "eagle3")
            (place / ("config.json" if data[:1] in b"{[" else "model.safetensors")).write_bytes(data)
            return reads(place)

    return read


@functools.cache
def checkpoint(kind: str) -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory(prefix="gpudiag-fuzz-") as directory:
        place = (write_target if kind == "model" else write_drafter)(Path(directory) / "x")
        return (place / "config.json").read_bytes(), (place / "model.safetensors").read_bytes()


def run_directory(data: bytes) -> object:
    with tempfile.TemporaryDirectory(prefix="gpudiag-fuzz-") as directory:
        for name in ("manifest.json", "progress.json", "server.log"):
            (Path(directory) / name).write_bytes(data)
        return rundir.read_run(Path(directory))


def samples(*patterns: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for pattern in patterns for path in sorted(TESTS.glob(pattern))[:4])


def unpacked(*patterns: str) -> tuple[bytes, ...]:
    return tuple(gzip.decompress(data)[:60_000] for data in samples(*patterns))


DUMP = msgspec.json.encode(
    [
        {
            "pid": 1,
            "thread_id": 7,
            "thread_name": "MainThread",
            "os_thread_id": 1,
            "active": True,
            "owns_gil": False,
            "frames": [
                {
                    "name": "f",
                    "filename": "/a.py",
                    "module": None,
                    "short_filename": "a.py",
                    "line": 3,
                    "locals": [{"name": "p", "addr": 5, "arg": True, "repr": "'/tmp/lock'"}],
                    "is_entry": True,
                }
            ],
            "process_info": None,
        }
    ]
)
KMSG = b"4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=12, name=python, GPU has fallen off the bus.\n SUBSYSTEM=pci"
METRICS = (
    b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} 1.0\n'
    b'vllm:generation_tokens_total{engine="0",model_name="m"} 12.0\n'
    b'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 5.0\n'
    b'sglang:num_running_reqs{model_name="m",tp_rank="0"} 1.0\nsglang:spec_accept_length{model_name="m"} NaN\n'
)
RAS_JSON = (
    b'{"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [{"hash": "0x1", "size": 2, "ranks": [{"rank": 0, '
    b'"pid": 5, "cuda_dev": 0, "nvml_dev": 0, "host": "h", "status": {"init_state": "complete", "async_error": "NCCL_SUCCESS"}, '
    b'"collective_counts": {"AllReduce": 20}}], "missing_ranks": [{"rank": 1, "considered_dead": true}]}]}'
)
CUDA_GDB = (
    b"Opening GPU coredump: x\n  Kernel Parent Dev Grid Status   SMs Mask GridDim  BlockDim Invocation\n"
    b"* 0 - 0 5 Active 0x1 (1,1,1) (32,1,1) k()\n"
)
CHAT = b'{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "id": 5}\n{"prompt": "x"}\n'
SPEC = (
    b"INFO 11-29 18:31:17 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.00, Accepted throughput: 10.96 "
    b"tokens/s, Drafted throughput: 32.88 tokens/s, Accepted: 128 tokens, Drafted: 384 tokens, Per-position acceptance rate: "
    b"1.000, 0.000, 0.000, Avg Draft acceptance rate: 33.3%\n"
    b"[2026-11-29 10:00:00 TP0] Decode batch, #running-req: 1, #token: 5, token usage: 0.1, accept len: 2.00, accept rate: 0.50, "
    b"cuda graph: False, gen throughput (token/s): 10.0, #queue-req: 0\n"
)
TEXTS = (
    sglang_trace(1, "ValueError: x").encode(),
    WATCHDOG.encode(),
    RAS.encode(),
    watchdog_dump(1, "f (a.py:3)").encode(),
    KMSG,
    SPEC,
)

PARSERS = (
    Parser("collect.procfs.parse_stat", procfs.parse_stat, (own("stat"),), (ValueError,)),
    Parser("collect.procfs.parse_status", procfs.parse_status, (own("status"),), (ValueError,)),
    Parser("collect.mounts.parse_mountinfo", mounts.parse_mountinfo, (own("mountinfo"),)),
    Parser("collect.maps.parse_maps", maps.parse_maps, (own("maps"), MAPS)),
    Parser("collect.environ.parse_environ", environ.parse_environ, (own("environ"), b"RANK=3\0NCCL_DEBUG=INFO\0")),
    Parser(
        "collect.guarded_state.parse_syscall", guarded_state.parse_syscall, (b"202 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8", b"running")
    ),
    Parser("collect.lock_table.parse_locks", lock_table.parse_locks, (b"1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF\n",)),
    Parser("collect.xid.parse_records", lambda data: xid.parse_records(data.split(b"\n\n")), (KMSG,)),
    Parser(
        "collect.pyspy_json.parse_dump",
        lambda data: pyspy_json.parse_dump(data, lambda paths: paths),
        (DUMP,),
        (msgspec.DecodeError,),
    ),
    Parser("collect.metrics.parse_metrics", lambda data: metrics.parse_metrics(decoded(data), 1.0), (METRICS,)),
    Parser("collect.ras.parse", ras.parse, (RAS_JSON,), (msgspec.MsgspecError, ValueError, KeyError, TypeError)),
    Parser(
        "collect.cuda_gdb.parse", lambda data: cuda_gdb.parse(decoded(data), decoded(data)), (CUDA_GDB,), (cuda_gdb.CudaGdbError,)
    ),
    Parser(
        "collect.nvml_protocol.decode",
        nvml_protocol.decode,
        (msgspec.msgpack.encode({"type": "x", "gpus": []}),),
        (msgspec.MsgspecError,),
    ),
    Parser(
        "collect.flight_recorder_load.load",
        flight_recorder_load.load,
        samples("flight_recorder/recorded/*/fr_dump_0"),
        (flight_recorder_load.RefusedError, MemoryError),
    ),
    Parser("collect.pylayout.parse_version", lambda data: pylayout.parse_version(decoded(data)), (b"3.12", b"3.14t")),
    Parser(
        "logs.pickles.load_plain", pickles.load_plain, samples("flight_recorder/recorded/*/fr_dump_0"), (pickles.NotPlainError,)
    ),
    Parser("logs.flight.load", lambda data: flight.load(data, "fr_dump_0", 0), samples("flight_recorder/recorded/*/fr_dump_0")),
    Parser("logs.grammar.parse", lambda data: grammar.parse(decoded(data)), TEXTS),
    Parser(
        "logs.facts.read_facts",
        in_file(lambda path: read_facts([str(path)]), "server.log"),
        (*TEXTS, *unpacked("logs/data/*_raise_rank1.log.gz", "logs/data/*_truncated.log.gz")),
    ),
    Parser(
        "session.load.load",
        in_file(load_recording, "x.gpudiag"),
        samples("recordings/servers/*idle*.gpudiag", "recordings/gpu/h200x2/killed.gpudiag"),
        (GpudiagError,),
    ),
    Parser(
        "config.parse_toml", lambda data: parse_toml(data, Profile, "p.toml"), (b'engine = "sglang"\ntp = 8\n',), (GpudiagError,)
    ),
    Parser("launch.history.load", in_file(history.load, "times.json"), (b'{"seconds": {"import": 3.5}}',)),
    Parser(
        "model.facts",
        lambda data: decode_json(data, Facts),
        unpacked("doctor/recordings/two-h200.json.gz"),
        (msgspec.DecodeError,),
    ),
    Parser(
        "doctor.fatbin.scan_data",
        lambda data: fatbin.scan_data(data, "x.so"),
        (gzip.decompress(samples("kernels/data/*.so.gz")[0])[:200_000],),
    ),
    Parser(
        "doctor.model_files.model", in_model("model", model_files.model), checkpoint("model"), (OSError, ValueError, GpudiagError)
    ),
    Parser(
        "doctor.drafter_files.drafter",
        in_model("drafter", lambda place: drafter_files.drafter(place, None)),
        checkpoint("drafter"),
        (OSError, ValueError, GpudiagError),
    ),
    Parser(
        "drafter.conversations.rows", in_file(lambda path: list(conversations.rows(path)), "c.jsonl"), (CHAT,), (GpudiagError,)
    ),
    Parser("drafter.prompts.read", in_file(prompts.read, "p.jsonl"), (CHAT,), (GpudiagError,)),
    Parser("drafter.log_lines.read", in_file(lambda path: log_lines.read(str(path)), "server.log"), (SPEC,), (GpudiagError,)),
    Parser("rules.kernels.runs_on.parse_capability", lambda data: runs_on.parse_capability(decoded(data)), (b"12.0", b"9.0a")),
    Parser(
        "tui.frame.decode",
        frame.decode,
        (zlib.compress(msgspec.msgpack.encode({"type": "frame", "at": 1.0, "reports": []})),),
        (msgspec.MsgspecError, ValueError, zlib.error),
    ),
    Parser(
        "tui.rundir.read_run",
        run_directory,
        (b'{"run_id": "r", "at": 1.0, "state": "serving", "phases": [], "sentence": ""}',),
        (GpudiagError,),
    ),
)
