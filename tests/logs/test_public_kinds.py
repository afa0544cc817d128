"""Kinds of faults that public reports tell of, rebuilt in the shape in which the engines print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudiag.logs.facts import read_facts
from gpudiag.model.report import Report
from tests.logs.shapes import RAS, WATCHDOG, sglang_trace, watchdog_dump
from tests.logs.support import facts_of, raw, report_of


def judged(text: str) -> Report:
    return report_of(facts_of(text.encode()))


@pytest.mark.parametrize(
    ("exception", "code", "said"),
    [
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
            "GPD218",
            "fabric manager",
        ),
        (
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
                "GiB. GPU 3 has a total capacity of 79.10 GiB of which 1.20 GiB is free."
            ),
            "GPD207",
            "GPU 3: 1.20 GiB free",
        ),
        (
            "RuntimeError: RMSNorm failed with error code no kernel image is available for execution on the device",
            "GPD206",
            "no image",
        ),
        (
            (
                "torch.AcceleratorError: CUDA error: no kernel image is "
                "available for execution on the device\nFor debugging consider"
            ),
            "GPD206",
            "no image",
        ),
        (
            (
                "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX "
                "codegen error\n`ptxas` stderr:\nptxas fatal   : Value 'sm_121a' is not "
                "defined for option 'gpu-name'"
            ),
            "GPD223",
            "sm_121a",
        ),
        (
            (
                "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:144] "
                "no error\nGloo connectFullMesh failed with: no error"
            ),
            "GPD402",
            "reach",
        ),
        (
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
            "GPD308",
            "1 of 2",
        ),
        (
            "ValueError: TP rank 0 finished loading but some ranks did not: monitored_barrier timed out after 480 s",
            "GPD228",
            "limit",
        ),
        (
            (
                "torch.distributed.DistBackendError: NCCL error in: "
                "ProcessGroupNCCL.cpp:3690, unhandled system error, NCCL version 2.28.9\n"
                "ncclSystemError: System call (e.g. socket, malloc) or external library call failed"
            ),
            "GPD219",
            "NCCL call",
        ),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", "GPD203", "libcudart.so.12"),
        (
            "ImportError: /opt/venv/sgl_kernel/common_ops.abi3.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSsb",
            "GPD204",
            "old string ABI",
        ),
        (
            "AttributeError: 'LlavaForConditionalGeneration' object has no attribute 'set_eagle3_layers_to_capture'",
            "GPD214",
            "EAGLE-3",
        ),
        ("RuntimeError: operator torchvision::nms does not exist", "GPD226", "torchvision::nms"),
        ("ValueError: 'qwen3_asr' is already used by a Transformers config, pick another name.", "GPD205", "qwen3_asr"),
        (
            (
                "ImportError: tokenizers>=0.22.0,<=0.23.0 is required for a "
                "normal functioning of this module, but found tokenizers==0.23.2."
            ),
            "GPD205",
            "tokenizers",
        ),
        ("MemoryError", "GPD208", "host memory"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "GPD222", "KV cache"),
        ("RuntimeError: flashinfer-cubin version (0.6.13) does not match flashinfer version (0.6.14).", "GPD220", "0.6.13"),
        (
            "RuntimeError: Error building extension 'fused_moe_120'\nfatal error: cuda_fp4.h: No such file or directory",
            "GPD223",
            "cuda_fp4.h",
        ),
    ],
)
def test_an_exception_gets_its_code(exception: str, code: str, said: str) -> None:
    verdict = judged(sglang_trace(3, exception)).verdict
    assert verdict.code == code, verdict.title
    assert said in verdict.title
    assert verdict.culprits[0].rank == 3


def test_the_kernels_record_names_the_death(tmp_path: Path) -> None:
    """A worker that died of SIGKILL, and the kernel's log beside it."""
    (tmp_path / "server.log").write_bytes(raw("vllm_sigkill_rank1"))
    (tmp_path / "zz-dmesg.txt").write_text(
        "[Sun Nov 29 18:32:58 2026] VLLM::Worker_TP invoked oom-killer: "
        "gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0\n"
        "[Sun Nov 29 18:32:58 2026] Memory cgroup out of memory: Killed process "
        "22785 (VLLM::Worker_TP) total-vm:99kB, anon-rss:8388608kB, file-rss:0kB\n"
    )
    verdict = report_of(read_facts([str(tmp_path)])).verdict
    assert verdict.code == "GPD208"
    assert verdict.confidence == "proven"
    assert verdict.culprits[0].rank == 1
    assert "8.0 GiB" in verdict.title


def test_hardware_outranks_what_the_server_says(tmp_path: Path) -> None:
    (tmp_path / "a-server.log").write_text(sglang_trace(2, "RuntimeError: RPC call failed"))
    (tmp_path / "b-kern.log").write_text(
        "Nov 29 09:59:58 node7 kernel: [ 1234.5] NVRM: Xid (PCI:0000:3b:00): "
        "48, pid=1234, name=python, An uncorrectable double bit error\n"
        "Nov 29 09:59:59 node7 kernel: [ 1235.5] NVRM: Xid (PCI:0000:3b:00): 63, pid=1234, Row remapping event\n"
    )
    report = report_of(read_facts([str(tmp_path)]))
    assert report.verdict.code == "GPD501"
    assert report.verdict.culprits[0].path == "PCI:0000:3b:00"
    assert [f.code for f in report.findings] == ["GPD501", "GPD220"]


def test_an_xid_of_the_program_is_no_hardware_fault() -> None:
    text = "[ 12.5] NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python, MMU Fault\n" + sglang_trace(1, "ValueError: bad input")
    assert judged(text).verdict.code == "GPD220"


def test_a_custom_all_reduce_that_fails_without_a_traceback() -> None:
    text = (
        "(Worker_TP0 pid=11) INFO 11-29 10:00:00 [gpu_model_runner.py:5000] Capturing CUDA graphs\n"
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'\n"
        "(EngineCore pid=10) ERROR 11-29 10:00:01 [multiproc_executor.py:315] "
        "Worker proc VllmWorker-1 died unexpectedly, shutting down executor.\n"
    )
    report = judged(text)
    assert report.verdict.code == "GPD407"
    assert "--disable-custom-all-reduce" in report.verdict.next_step


def test_a_small_dev_shm_behind_an_nccl_error() -> None:
    text = (
        "node7:100:140 [1] include/shmutils.h:44 NCCL WARN Error: failed to extend "
        "/dev/shm/nccl-Xy12 to 33030532 bytes, error: No space left on device (28)\n"
    ) + sglang_trace(
        1, "torch.distributed.DistBackendError: NCCL error in: init.cpp:1, unhandled system error, NCCL version 2.28.9"
    )
    verdict = judged(text).verdict
    assert verdict.code == "GPD209"
    assert verdict.culprits[0].path == "/dev/shm"


def test_the_rank_that_is_behind_by_the_watchdogs_numbers() -> None:
    text = "".join(WATCHDOG.format(r=r, s=r, n=286 if r != 5 else 285, op="ALLREDUCE", size=4096, done=284) for r in range(8))
    verdict = judged(text).verdict
    assert verdict.code == "GPD301", verdict.title
    assert [c.rank for c in verdict.culprits] == [5]


def test_different_operations_under_one_number() -> None:
    text = "".join(WATCHDOG.format(r=r, s=r, n=77, op="ALLREDUCE" if r else "REDUCE_SCATTER", size=64, done=76) for r in range(2))
    verdict = judged(text).verdict
    assert verdict.code == "GPD302", verdict.title
    assert {c.rank for c in verdict.culprits} == {0, 1}


def test_one_watchdog_alone_blames_nobody() -> None:
    assert judged(WATCHDOG.format(r=0, s=1, n=9, op="ALLREDUCE", size=1, done=8)).verdict.code == "GPD228"


def test_ncclras_text() -> None:
    verdict = judged(RAS).verdict
    assert verdict.code == "GPD301"
    assert verdict.culprits[0].rank == 1


def test_torchruns_summary_names_the_killed_rank() -> None:
    text = (
        "E1129 10:00:00.000000 4242 torch/distributed/elastic/multiprocessing/api.py:869] "
        "failed (exitcode: -9) local_rank: 3 (pid: 4250) of binary: "
        "/opt/venv/bin/python\nTraceback (most recent call last):\n"
        '  File "/opt/venv/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    verdict = judged(text).verdict
    assert verdict.code == "GPD210"
    assert (verdict.culprits[0].rank, verdict.culprits[0].pid) == (3, 4250)


def test_a_lock_of_a_compiler_cache() -> None:
    text = "".join(
        f"[2026-11-29 10:00:0{r} TP{r}] Load weight end. elapsed=1 s, type=LlamaForCausalLM\n" for r in range(4)
    ) + "".join(
        f"[2026-11-29 10:00:1{r} TP{r}] [aiter] waiting for baton release at /root/.aiter/build/lock_module_moe\n" for r in (2, 3)
    )
    verdict = judged(text).verdict
    assert verdict.code == "GPD307"
    assert verdict.culprits[0].path == "/root/.aiter/build/lock_module_moe"


def test_the_communicator_that_is_never_made() -> None:
    text = "".join(
        f"(Worker_TP{r} pid={40 + r}) INFO 11-29 10:00:0{r} [pynccl.py:111] vLLM is using nccl==2.28.9\n" for r in range(4)
    )
    verdict = judged(text).verdict
    assert verdict.code == "GPD401"
    assert verdict.confidence == "weak"
    assert [c.rank for c in verdict.culprits] == [0, 1, 2, 3]


def test_a_stop_in_nvls_setup() -> None:
    text = (
        "node7:1:1 [0] NCCL INFO NVLS comm 0x1 headRank 0 nHeads 4\nnode7:1:1 "
        "[0] NCCL INFO NVLS Bind mem 0x7f0 UC handle 0x1 MC handle 0x2\n"
    )
    assert judged(text).verdict.code == "GPD408"


def test_a_banner_that_blames_the_wrong_package_is_seen_through() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/sgl_kernel/load_utils.py", line 40, in _load\n    torch.ops.load_library(path)\n'
        "OSError: libnuma.so.1: cannot open shared object file: No such file or directory\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "<frozen runpy>", line 198, in _run_module_as_main\n'
        '  File "/opt/venv/sgl_kernel/load_utils.py", line 90, in _raise\n    raise ImportError(msg)\n'
        "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!\nExpected "
        "variant: sm90\nPlease reinstall sgl_kernel: pip install sgl-kernel\n"
    )
    report = judged(text)
    assert report.verdict.code == "GPD203"
    assert "libnuma1" in report.verdict.next_step


@pytest.mark.parametrize(
    "line",
    [
        "(VllmWorker rank=1 pid=77) ERROR 03-01 10:00:00 [multiproc_executor.py:372] ",
        "(VllmWorkerProcess rank=1 pid=77) ERROR 03-01 10:00:00 multiproc_worker_utils.py:242] ",
        "(RayWorkerWrapper pid=77, ip=192.0.2.9) ERROR 03-01 10:00:00 [worker_base.py:600] ",
        "ERROR 03-01 10:00:00 [core.py:387] ",
        "(EngineCore_0 pid=77) ",
        "[rank1]: ",
    ],
)
def test_older_prefixes(line: str) -> None:
    trace = [
        "Traceback (most recent call last):",
        '  File "/opt/venv/vllm/worker/worker.py", line 9, in load',
        "    x()",
        "ValueError: bad",
    ]
    verdict = judged("".join(f"{line}{t}\n" for t in trace)).verdict
    assert verdict.code == "GPD220"
    assert verdict.culprits[0].line == 9
    if "rank" in line.partition(")")[0]:
        assert verdict.culprits[0].rank == 1


def test_only_victims_is_not_enough_and_says_what_to_collect() -> None:
    text = "[2026-11-29 10:00:00] The server is fired up and ready to roll!\n" + "".join(
        f"[2026-11-29 10:0{m}:20] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.\n"
        for m in range(3)
    )
    report = judged(text)
    assert report.verdict.status == "insufficient"
    assert "gpudiag attach" in report.verdict.next_step
    assert report.target is not None
    assert report.target.state == "hung"


def test_ranks_of_a_node_that_lost_the_other_node_are_victims() -> None:
    lost = (
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
        "Timed out waiting 1800000ms for recv operation to complete"
    )
    text = "".join(sglang_trace(r, lost) for r in range(8, 16))
    report = judged(text)
    assert report.verdict.code is None
    assert "stopped answering" in report.verdict.title


def test_what_happens_after_an_order_to_stop_is_no_failure() -> None:
    text = (
        "[2026-11-29 10:00:00] The server is fired up and ready to roll!\n[2026-11-29 "
        "11:00:00] SIGTERM received. signum=None frame=None. Draining requests\n"
        "[2026-11-29 11:00:01] Subprocess scheduler_0 (pid=7) crashed with exit code -15. Triggering SIGQUIT for cleanup...\n"
        "[2026-11-29 11:00:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
    ) + sglang_trace(1, "ConnectionResetError: [Errno 104] Connection reset by peer")
    assert judged(text).verdict.status == "healthy"


def test_an_exception_that_was_survived_is_not_blamed() -> None:
    """A request fails, the server goes on, and dies later of something else."""
    text = (
        "[2026-11-29 09:00:00] The server is fired up and ready to roll!\n"
        "[2026-11-29 09:01:00] Error in request: Traceback (most recent call last):\n"
        '  File "/opt/venv/sglang/srt/entrypoints/http_server.py", line 3, in generate\n    go()\nValueError: prompt too long\n\n'
        "[2026-11-29 09:02:00 TP0] Decode batch, #running-req: 1\n"
    ) + sglang_trace(1, "IndexError: the real one")
    verdict = judged(text).verdict
    assert "the real one" in verdict.title


def test_a_restart_in_the_same_file_ends_the_old_question() -> None:
    start = "[2026-11-29 09:00:00] server_args={'model_path': '/models/a', 'tp_size': 2}\n"
    text = (
        start
        + sglang_trace(0, "ValueError: first run")
        + start
        + "[2026-11-29 10:30:00] The server is fired up and ready to roll!\n"
    )
    report = judged(text)
    assert report.verdict.status == "healthy"
    assert any("2 runs" in n.reason for n in report.not_read)


def test_a_watchdogs_stacks_show_the_rank_that_stands_elsewhere() -> None:
    reduce = "all_reduce (torch/distributed/distributed_c10d.py:3068)"
    text = "[2026-11-29 10:05:00] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n" + "".join(
        watchdog_dump(r, reduce if r != 2 else "read_shard (sglang/srt/model_loader/weight_utils.py:77)") for r in range(4)
    )
    verdict = judged(text).verdict
    assert verdict.code == "GPD301", verdict.title
    assert verdict.confidence == "weak"
    culprit = verdict.culprits[0]
    assert (culprit.rank, culprit.pid, culprit.line) == (2, 502, 77)


def test_stacks_of_an_idle_server_blame_nobody() -> None:
    """An idle first rank stands in the very broadcast in which a hung one stands."""
    idle = (
        "broadcast (torch/distributed/distributed_c10d.py:3151)\n    broadcast_pyobj (sglang/srt/utils/common.py:2715)\n"
        "    recv_requests (sglang/srt/managers/request_receiver.py:93)"
    )
    text = "[2026-11-29 10:05:00] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n" + "".join(
        watchdog_dump(r, idle if r == 0 else "sleep (sglang/srt/managers/scheduler.py:10)") for r in range(2)
    )
    assert judged(text).verdict.status == "insufficient"


NO_STACKS = """\
[2026-11-29 10:05:00 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)
Pyspy failed (py-spy dump --native --pid 16285). Error: /bin/sh: 1: py-spy: not found
"""
SIGQUIT = "[2026-11-29 10:05:09] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"


def test_a_watchdog_that_leaves_no_stack_destroys_the_evidence() -> None:
    report = judged(NO_STACKS + SIGQUIT)
    assert (report.verdict.code, report.verdict.severity) == ("GPD703", "warning")
    assert "300 s" in report.verdict.title
    assert any("py-spy" in step for step in report.findings[0].next_steps)


@pytest.mark.parametrize(
    "text",
    [
        NO_STACKS,
        NO_STACKS.replace("soft=False", "soft=True") + SIGQUIT,
        SIGQUIT + NO_STACKS,
        NO_STACKS + watchdog_dump(1, "sleep (sglang/srt/managers/scheduler.py:10)") + SIGQUIT,
    ],
    ids=["it goes on", "soft", "before", "with stacks"],
)
def test_a_watchdog_that_ends_nothing_or_leaves_stacks_destroys_none(text: str) -> None:
    assert "GPD703" not in {f.code for f in judged(text).findings}


def test_a_dump_that_was_asked_for_is_asked_of_the_person() -> None:
    text = (
        "node7:5:5 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
        "[rank0]:[E1129 18:22:42.854929752 ProcessGroupNCCL.cpp:1628] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
        "ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1, only active collectives: 0\n"
    )
    report = judged(text)
    assert report.verdict.status == "insufficient"
    assert "no dump is among these files" in report.verdict.title
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in report.verdict.next_step
    assert report.target is not None
    assert (report.target.state, report.target.version) == ("unknown", None)


def test_what_a_logger_says_is_no_complaint_of_an_argument_parser() -> None:
    assert not judged("INFO:     client: error: it went wrong\n" * 3).findings
    assert judged("vllm serve: error: argument --port: invalid int value: 'x'\n").verdict.code == "GPD221"


def test_newer_functions_of_the_rdma_libraries_that_nccl_does_without_are_no_fault() -> None:
    """NCCL 2.28.9 on two H200s, NCCL_DEBUG=INFO: a healthy start."""
    symbol = "mlx5dv_get_data_direct_sysfs_path"
    line = f"/lib/x86_64-linux-gnu/libmlx5.so: undefined symbol: {symbol}, version MLX5_1.25 version MLX5_1.25"
    report = judged(
        "node1:866:866 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so\n"
        f"node1:866:866 [0] NCCL INFO dlvsym failed on {symbol} - {line}\n"
        "node1:866:866 [0] NCCL INFO Initialized NET plugin Socket\n"
    )
    assert report.findings == ()
    assert judged(f"OSError: {line}\n").verdict.code == "GPD204"


def test_a_ras_port_that_is_taken_is_only_a_warning() -> None:
    text = (
        "node7:5:5 [0] ras/ras.cc:101 NCCL WARN RAS failed to bind its listening socket at 127.0.0.1<28028>\n"
        "[2026-11-29 10:00:00] The server is fired up and ready to roll!\n"
    )
    report = judged(text)
    assert report.verdict.code == "GPD406"
    assert report.verdict.severity == "warning"
    crash = judged(text + sglang_trace(1, "ValueError: bad input"))
    assert crash.verdict.code == "GPD220"


def test_two_nodes_are_ordered_by_time(tmp_path: Path) -> None:
    """The node whose file comes first in the alphabet failed last."""
    (tmp_path / "node-a.log").write_text(sglang_trace(0, "RuntimeError: sampler got no logits", second=31))
    (tmp_path / "node-b.log").write_text(sglang_trace(9, "OSError: [Errno 5] Input/output error", second=12))
    verdict = report_of(read_facts([str(tmp_path)])).verdict
    assert verdict.culprits[0].rank == 9


def test_a_second_start_is_judged_by_what_it_says_of_itself() -> None:
    """The operator has corrected the path of the model, and the version is another: the old run's are forgotten."""

    def start(model: str, pid: int, version: str, tp: int) -> str:
        return (
            f"(APIServer pid={pid}) INFO 11-29 10:00:00 [api_utils.py:286] non-default args: "
            f"{{'model': '{model}', 'tensor_parallel_size': {tp}}}\n"
            f"(EngineCore pid={pid + 1}) INFO 11-29 10:00:05 [core.py:133] Initializing a V1 LLM engine (v{version}) "
            f"with config: model='{model}', tensor_parallel_size={tp}\n"
        )

    facts = facts_of((start("/models/old", 100, "0.24.0", 8) + start("/models/new", 200, "0.32.0", 2)).encode())
    assert (facts.model, facts.root_pid, facts.version, facts.tensor_parallel) == ("/models/new", 200, "0.32.0", 2)
