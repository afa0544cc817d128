"""Kinds of faults from public reports, rebuilt: what the engine, torch, NCCL or the kernel printed, around the decisive line.

The number in the name is that of the public issue or pull request. `code` and culprit are what the report came to in the end,
not what its first lines suggest. The lines that misled people there are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.faults.case import Culprit, Fault, Staged, Variation
from tests.logs.shapes import RAS, sglang_trace
from tests.logs.support import noise, raw

Files = Mapping[str, str | bytes]
LOADING = "".join(
    f"[2026-11-29 10:00:0{r} TP{r}] Load weight end. elapsed=1 s, type=LlamaForCausalLM\n"
    f"Loading safetensors checkpoint shards: {25 * (r + 1)}% Completed | {r + 1}/4\n"
    for r in range(4)
)
VLLM_VICTIMS = (
    "(EngineCore pid=10) INFO 11-29 10:05:00 [shm_broadcast.py:871] No available shared memory broadcast block found in 60 "
    "seconds. This typically happens when some processes are hanging or doing some time-consuming work "
    "(e.g. compilation, weight/kv cache quantization).\n"
)


def report(name: str, code: str | None, planted: str, files: Files | str, **culprit: Any) -> Fault:
    """An entry for these files; a text alone is server.log. Runs after the first put a healthy server's lines ahead."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        texts = {"server.log": files} if isinstance(files, str) else files
        for file, text in texts.items():
            data = text.encode() if isinstance(text, str) else text
            ahead = b"".join(noise("sglang")[: 500 * vary.number]) if file == "server.log" and b" TP" in data else b""
            (vary.directory / file).write_bytes(ahead + data)
        yield Staged(("explain", *(str(vary.directory / file) for file in texts)), Culprit(**culprit))

    return Fault(name=f"report-{name}", planted=planted, code=code, ground="report", stage=stage)


FAULTS = (
    report(
        "gpustack-1254",
        "GPD218",
        "no fabric manager on a machine with NVSwitch",
        sglang_trace(3, "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"),
        rank=3,
    ),
    report(
        "sglang-7249",
        "GPD206",
        "the kernel package has no code for this GPU",
        sglang_trace(0, "RuntimeError: RMSNorm failed with error code no kernel image is available for execution on the device"),
        rank=0,
    ),
    report(
        "triton-8539",
        "GPD223",
        "Triton's own ptxas is older than the GPU",
        sglang_trace(
            1,
            "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n"
            "`ptxas` stderr:\nptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        ),
        says="sm_121a",
    ),
    report(
        "vllm-50705",
        "GPD223",
        "FlashInfer builds kernels with a CUDA toolkit older than the GPU",
        "(Worker_TP0 pid=11) INFO 11-29 10:00:00 [topk_topp_sampler.py:60] Using FlashInfer for top-p & top-k sampling.\n"
        + "".join(
            f"(Worker_TP0 pid=11) ERROR 11-29 10:00:09 [multiproc_executor.py:1056] {line}\n"
            for line in (
                "WorkerProc hit an exception.",
                "Traceback (most recent call last):",
                '  File "/opt/venv/lib/python3.12/site-packages/flashinfer/jit/cpp_ext.py", line 339, in run_ninja',
                "    raise RuntimeError(msg) from e",
                "RuntimeError: Ninja build failed. Ninja output:",
                "FAILED: sampling.cuda.o",
                "nvcc fatal   : Unsupported gpu architecture 'compute_120f'",
            )
        ),
        says="compute_120f",
    ),
    report(
        "sglang-3226",
        "GPD402",
        "gloo takes a network interface on which the nodes do not reach each other",
        sglang_trace(
            0,
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"
            "Gloo connectFullMesh failed with: no error",
        ),
        rank=0,
    ),
    report(
        "sglang-39128",
        "GPD228",
        "two ranks take longer after the weights are loaded than the barrier allows",
        LOADING
        + sglang_trace(
            0, "ValueError: TP rank 0 finished loading but some ranks did not: monitored_barrier timed out after 480 s"
        ),
        says="limit",
    ),
    report(
        "sglang-5100",
        "GPD204",
        "an extension built for a torch with the other C++ ABI",
        sglang_trace(
            2, "ImportError: /opt/venv/sgl_kernel/common_ops.abi3.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSsb"
        ),
        path="common_ops.abi3.so",
    ),
    report(
        "odysseus-6257",
        "GPD203",
        "libnuma1 is missing; a banner blames sgl_kernel",
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/sgl_kernel/load_utils.py", line 40, in _load\n    torch.ops.load_library(path)\n'
        "OSError: libnuma.so.1: cannot open shared object file: No such file or directory\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "<frozen runpy>", line 198, in _run_module_as_main\n'
        '  File "/opt/venv/sgl_kernel/load_utils.py", line 90, in _raise\n    raise ImportError(msg)\n'
        "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!\nExpected variant: sm90\n"
        "Please reinstall sgl_kernel: pip install sgl-kernel\n",
        path="libnuma.so.1",
    ),
    report(
        "vllm-49804",
        "GPD220",
        "flashinfer-cubin 0.6.13 beside flashinfer 0.6.14",
        sglang_trace(0, "RuntimeError: flashinfer-cubin version (0.6.13) does not match flashinfer version (0.6.14)."),
        says="0.6.13",
    ),
    report(
        "dynamo-1408",
        "GPD209",
        "/dev/shm of 64 MiB",
        "node7:100:140 [1] NCCL INFO Connected all rings\nnode7:100:140 [1] NCCL INFO Connected all trees\n"
        "node7:100:140 [1] include/shmutils.h:44 NCCL WARN Error: failed to extend /dev/shm/nccl-Xy12 to 33030532 bytes, "
        "error: No space left on device (28)\n"
        + sglang_trace(
            1, "torch.distributed.DistBackendError: NCCL error in: init.cpp:1, unhandled system error, NCCL version 2.28.9"
        ),
        path="/dev/shm",
    ),
    report(
        "sglang-37931",
        "GPD208",
        "the kernel kills a worker for memory while it converts weights",
        {
            "server.log": raw("vllm_sigkill_rank1"),
            "dmesg.txt": "[Sun Nov 29 18:32:58 2026] VLLM::Worker_TP invoked oom-killer: "
            "gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0\n"
            "[Sun Nov 29 18:32:58 2026] Memory cgroup out of memory: Killed process 22785 (VLLM::Worker_TP) "
            "total-vm:99kB, anon-rss:8388608kB, file-rss:0kB\n",
        },
        rank=1,
    ),
    report(
        "vllm-backport-62",
        "GPD501",
        "the memory of one GPU fails; the engine blames a call",
        {
            "server.log": sglang_trace(2, "RuntimeError: RPC call to sample_tokens timed out."),
            "kern.log": "Nov 29 09:59:58 node7 kernel: [ 1234.5] NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, name=python, "
            "An uncorrectable double bit error\n"
            "Nov 29 09:59:59 node7 kernel: [ 1235.5] NVRM: Xid (PCI:0000:3b:00): 63, pid=1234, Row remapping event\n",
        },
        path="PCI:0000:3b:00",
    ),
    report(
        "vllm-47751",
        "GPD407",
        "vLLM's own all-reduce on a GPU that it has no settings for",
        "(Worker_TP0 pid=11) INFO 11-29 10:00:00 [gpu_model_runner.py:5000] Capturing CUDA graphs\n"
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'\n"
        "(EngineCore pid=10) ERROR 11-29 10:00:01 [multiproc_executor.py:315] "
        "Worker proc VllmWorker-1 died unexpectedly, shutting down executor.\n",
    ),
    report(
        "hami-2641",
        "GPD401",
        "a preloaded library keeps NCCL from creating the communicator; the last words of each worker are pynccl's",
        "".join(
            f"(Worker_TP{r} pid={40 + r}) INFO 11-29 10:00:0{r} [pynccl.py:111] vLLM is using nccl==2.28.9\n" for r in range(4)
        ),
        ranks=frozenset(range(4)),
    ),
    report(
        "nccl-tests-216",
        "GPD408",
        "NVLS setup stops",
        "node7:1:1 [0] NCCL INFO NVLS comm 0x1 headRank 0 nHeads 4\n"
        "node7:1:1 [0] NCCL INFO NVLS Bind mem 0x7f0 UC handle 0x1 MC handle 0x2\n",
    ),
    report(
        "inferencex-1360",
        "GPD307",
        "TP0 left a lock file; TP2 and TP3 wait for it, and the engine complains about the ring buffer",
        LOADING
        + "".join(
            f"[2026-11-29 10:00:1{r} TP{r}] [aiter] waiting for baton release at /root/.aiter/build/lock_module_moe\n"
            for r in (2, 3)
        ),
        path="/root/.aiter/build/lock_module_moe",
    ),
    report(
        "dspark-117",
        "GPD301",
        "rank 0 never comes to operation 288686; NCCL's RAS says MISMATCH",
        {
            "ras.txt": RAS.replace(
                "Rank 0 has launched up to operation 21", "Rank 0 has launched up to operation 288685"
            ).replace("Rank 1 has launched up to operation 20", "Rank 1 has launched up to operation 288686"),
            "server.log": VLLM_VICTIMS,
        },
        rank=0,
    ),
    report(
        "nccl-1637",
        "GPD219",
        "NCCL 2.25.1 wants more shared memory than an RTX 5090 has; it says so at INFO level",
        "node7:9:9 [0] NCCL INFO NCCL version 2.25.1+cuda12.8\n"
        "node7:9:9 [0] enqueue.cc:1553 NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856\n"
        + sglang_trace(
            0,
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled cuda error, "
            "NCCL version 2.25.1\nncclUnhandledCudaError: Call to CUDA function failed.",
        ),
        rank=0,
    ),
    report(
        "out-of-memory",
        "GPD207",
        "one GPU is nearly full",
        sglang_trace(
            3,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.10 GiB "
            "of which 1.20 GiB is free.",
        ),
        rank=3,
    ),
)

UNDECIDED = (
    report(
        "vllm-42186",
        None,
        "workers hang in a kernel; only the victims of it are in the log",
        VLLM_VICTIMS
        * 3
        + "(APIServer pid=9) ERROR 11-29 10:09:00 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
        "encountered an issue. See stack trace (above) for the root cause.\n",
    ),
    report(
        "sglang-27944",
        None,
        "node 0 stops answering; all ranks of the other node say so",
        "".join(
            sglang_trace(
                r,
                "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
                "Timed out waiting 1800000ms for recv operation to complete",
            )
            for r in range(8, 16)
        ),
    ),
    report(
        "sglang-22511",
        None,
        "the scheduler stops producing; the detokenizer is blamed",
        "[2026-11-29 10:00:00] The server is fired up and ready to roll!\n"
        + "".join(
            f"[2026-11-29 10:0{m}:20] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.\n"
            for m in range(3)
        ),
    ),
)

LOOK_ALIKES = (
    report(
        "told-to-stop",
        None,
        "what breaks after an order to stop",
        "[2026-11-29 10:00:00] The server is fired up and ready to roll!\n"
        "[2026-11-29 11:00:00] SIGTERM received. signum=None frame=None. Draining requests\n"
        "[2026-11-29 11:00:01] Subprocess scheduler_0 (pid=7) crashed with exit code -15. Triggering SIGQUIT for cleanup...\n"
        "[2026-11-29 11:00:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
        + sglang_trace(1, "ConnectionResetError: [Errno 104] Connection reset by peer"),
    ),
    report(
        "deepgemm-pre-compile",
        None,
        "DeepGEMM compiles for 20 minutes before it serves",
        "[2026-11-29 10:00:00 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins) "
        "if you have not run `sglang.compile_deep_gemm`.\n"
        + "".join(f"DeepGEMM warmup: {n}%|###   | {n}/100 [10:{n:02d}<9:00]\n" for n in range(10, 50, 10)),
    ),
    report(
        "request-refused",
        None,
        "a request fails, the server goes on",
        "[2026-11-29 09:00:00] The server is fired up and ready to roll!\n"
        "[2026-11-29 09:01:00] Error in request: Traceback (most recent call last):\n"
        '  File "/opt/venv/sglang/srt/entrypoints/http_server.py", line 3, in generate\n    go()\nValueError: prompt too long\n\n'
        "[2026-11-29 09:02:00 TP0] Decode batch, #running-req: 1\n",
    ),
    report(
        "ras-port-shared",
        None,
        "two jobs of one host want NCCL's RAS port",
        "node7:5:5 [0] ras/ras.cc:101 NCCL WARN RAS failed to bind its listening socket at 127.0.0.1<28028>\n"
        "[2026-11-29 10:00:00] The server is fired up and ready to roll!\n",
    ),
)
