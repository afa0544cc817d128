"""Shapes in which engines, torch, NCCL and the kernel print faults, to be filled in."""

from __future__ import annotations

SG = "[2026-11-29 10:00:{:02d}{}] "


def sglang_trace(
    rank: int, exception: str, *, second: int = 10, frame: str = 'File "/opt/venv/sglang/srt/models/llama.py", line 5, in forward'
) -> str:
    return (
        f"{SG.format(second, f' TP{rank}')}Scheduler hit an exception: Traceback (most recent call last):\n"
        f"  {frame}\n    call()\n{exception}\n\n{SG.format(second, '')}Received "
        "sigquit from a child process. It usually means the child failed.\n"
    )


def watchdog_dump(rank: int, innermost: str) -> str:
    """What SGLang's watchdog writes: a py-spy dump of each scheduler."""
    return (
        f"[2026-11-29 10:05:0{rank}] Pyspy dump for PID {500 + rank}:\n"
        f"Process {500 + rank}: sglang::scheduler_TP{rank}\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
        f'Thread {500 + rank} (active): "MainThread"\n    {innermost}\n'
        "    forward (sglang/srt/models/llama.py:612)\n    forward_extend (sglang/srt/model_executor/model_runner.py:1600)\n"
        "    event_loop_overlap (sglang/srt/managers/scheduler.py:1732)\n"
        f'Thread {900 + rank} (idle): "Thread-1"\n    wait (threading.py:331)\n\n'
    )


WATCHDOG = (
    "[rank{r}]:[E1129 10:10:{s:02d}.1 ProcessGroupNCCL.cpp:683] [Rank {r}] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={n}, "
    "OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
    "[rank{r}]:[E1129 10:10:{s:02d}.2 ProcessGroupNCCL.cpp:2241] [PG ID 2 PG "
    "GUID 3 Rank {r}]  failure detected by watchdog at work sequence id: {n} "
    "PG status: last enqueued work: {n}, last completed work: {done}\n"
)


RAS = """\
NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Warnings
========

#0-0 (ae50ceca3b8107b8) MISMATCH
  Communicator ranks have different AllReduce operation counts
  Rank 0 has launched up to operation 21 -- GPU 0 managed by process 692 on node 192.0.2.2
  Rank 1 has launched up to operation 20 -- GPU 1 managed by process 693 on node 192.0.2.2

"""
