"""Lines of torch, NCCL, CUDA, the kernel, uvicorn and argparse, which both engines pass on."""

from __future__ import annotations

from typing import Final

from gpudiag.logs.engines.base import Sign, Step, Victim, sign, step, victim

SIGNS: Final[tuple[Sign, ...]] = (
    sign("nccl-warn", " NCCL WARN ", r".*"),
    sign("nccl-info", "exceeds device/fn maxSharedMem", r"(?P<what>ncclMaxSharedMem \d+ exceeds device/fn maxSharedMem \d+)"),
    sign("nccl-info", "NVLS", r"(?P<what>NVLS.{1,120})"),
    sign("nccl-info", "Init COMPLETE", r"rank (?P<rank>\d+) nranks (?P<size>\d+).*commId (?P<comm>0x[0-9a-f]+) - Init COMPLETE"),
    sign("nccl-info", "Init START", r"rank (?P<rank>\d+) nranks (?P<size>\d+).*commId (?P<comm>0x[0-9a-f]+) - Init START"),
    sign(
        "collective-timeout",
        "Watchdog caught collective operation timeout",
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<sequence>\d+), "
        r"OpType=(?P<operation>\w+), NumelIn=(?P<numel_in>\d+), "
        r"NumelOut=(?P<numel_out>\d+),.*?Timeout\(ms\)=(?P<limit_ms>\d+)\)",
    ),
    sign(
        "collective-status",
        "last enqueued",
        (
            r"(?:PG GUID (?P<group>[^)]*\)?) Rank (?P<rank>\d+)\])?.*?last enqueued (?:NCCL "
            r")?work: (?P<enqueued>-?\d+), last completed (?:NCCL )?work: (?P<completed>-?\d+)"
        ),
    ),
    sign(
        "collective-status", "preparing to dump debug info", r"Rank (?P<rank>\d+)\] ProcessGroupNCCL preparing to dump debug info"
    ),
    sign("native-crash", "Process group watchdog thread terminated", r"terminated with exception: (?P<error>.{1,200})"),
    sign("native-crash", "Fatal Python error", r"Fatal Python error: (?P<error>.{1,100})"),
    sign("native-crash", "!!!!!!! Segfault encountered", r"Segfault encountered"),
    sign(
        "native-crash",
        "terminate called after throwing",
        r"terminate called after throwing an instance of '(?P<error>[^']{1,120})'",
    ),
    sign("native-crash", "Segmentation fault", r"Segmentation fault"),
    sign("native-crash", "Illegal instruction", r"Illegal instruction"),
    sign("native-crash", "Bus error", r"Bus error"),
    sign(
        "oom-kill",
        ": Killed process ",
        r"Killed process (?P<pid>\d+) \((?P<name>[^)]{0,40})\)(?:.*?anon-rss:(?P<rss_kb>\d+)kB)?",
    ),
    sign("oom-kill", "oom-kill:", r"oom-kill:.*?task=(?P<name>[^,]{1,40}),pid=(?P<pid>\d+)"),
    sign("worker-died", " Killed ", r"line \d+: +(?P<pid>\d+) Killed\b"),
    sign("xid", "NVRM: Xid (", r"NVRM: Xid \((?P<device>[^)]{1,60})\): (?P<xid>\d+),? ?(?P<detail>.{0,200})"),
    sign(
        "elastic",
        "failed (exitcode: ",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local_rank>\d+) \(pid: (?P<pid>\d+)\)",
    ),
    sign("elastic", "exitcode  :", r"exitcode  : (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)"),
    sign("usage-error", " error: ", r"^(?P<program>[\w./-]+(?: [\w-]+)?): error: (?P<message>.{1,600})$"),
    sign("address-in-use", "ddress already in use", r"(?P<what>.{0,120}[Aa]ddress already in use.{0,60})"),
    sign(
        "library", "cannot open shared object file", r"(?P<library>[\w.+-]{1,120}\.so[\w.]{0,20}): cannot open shared object file"
    ),
    # NCCL looks for newer functions of the RDMA libraries with dlvsym and does without those that are not there.
    sign(
        "library",
        "undefined symbol: ",
        r"^(?!.{0,200}dlvsym failed)(?:.*?[\s:'\"])?"
        r"(?P<library>[^\s:'\"]{1,300}\.so[\w.]{0,20}): undefined symbol: (?P<symbol>\w+)",
    ),
    sign("library", "no kernel image is available", r"(?P<what>.{0,120}no kernel image is available.{0,60})"),
    sign("baton", "baton", r"waiting for baton (?:release )?.*?(?P<path>/\S+)"),
    sign(
        "baton",
        "another process to release the lock",
        r"(?:[Ww]aiting|[Ww]ait) for another process to release the lock (?:at|on) (?P<path>/\S+)",
    ),
    sign("shutdown", "Shutting down", r"^Shutting down"),
    sign("shutdown", "Application shutdown complete", r"Application shutdown complete"),
    sign("error-line", "ptxas fatal", r"(?P<what>ptxas fatal.{1,200})"),
    sign("error-line", "ninja: build stopped", r"(?P<what>ninja: build stopped.{1,100})"),
    sign("error-line", "connectFullMesh failed", r"(?P<what>.{0,80}connectFullMesh failed.{0,120})"),
    sign(
        "error-line",
        "using GPU",
        r"(?P<what>using GPU \d+ to perform barrier as devices used by this process are currently unknown)",
    ),
)

STEPS: Final[tuple[Step, ...]] = (
    step("Init COMPLETE", 36, "NCCL communicator made"),
    step("Init START", 33, "NCCL communicator being made"),
)

VICTIMS: Final[tuple[Victim, ...]] = (
    victim(
        "a peer left the process group", message=r"Connection (?:closed|reset) by peer|Broken pipe|Connection was likely closed"
    ),
    victim("another rank aborted NCCL", message=r"NCCL communicator was aborted|aborted on rank"),
    victim("another process failed first (torchrun's summary)", exception=r"ChildFailedError"),
    victim(
        "a child process ended",
        exception=(
            r"BrokenPipeError|ConnectionResetError|EOFError|"
            r"BrokenProcessPool|ProcessExitedException|ProcessRaisedException"
        ),
    ),
    victim(
        "the group's store was closed by its owner",
        message=r"recvValue failed|sendBytes failed|store (?:is )?(?:closed|shut down)",
    ),
    victim("a Ray actor died", exception=r"ActorDiedError|RayActorError|WorkerCrashedError"),
)
