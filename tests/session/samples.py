"""Small observations that hold everything redaction must find."""

from __future__ import annotations

from gpudiag.model.file import FileFact
from gpudiag.model.network import Socket
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Host, Observation, Snapshot
from gpudiag.model.stack import FilePoll, Frame, PyStack

HOST = "gpu-node-17"
USER = "alice"
SECRETS = (
    "hf_abcdefghijKLMNOPQRST0123456789abcd",
    "hf_Ab3dEfGhIjKl",
    "sk-proj-abcDEF0123456789abcd",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_0123456789abcdefghij0123456789abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
)


def host(name: str = HOST) -> Host:
    return Host(name=name, kernel="6.8.0", boot_id="b", cpu_count=2, clock_ticks=100, observer_uid=0)


def process(pid: int, *cmdline: str) -> Process:
    return Process(
        pid=pid, ppid=1, start_ticks=pid, name="python3", state="S", uid=1000, cpu_ticks=7, cmdline=Ok(value=cmdline, at=1.0)
    )


def snapshot(*processes: Process, host_name: str = HOST, at: float = 1000.0) -> Snapshot:
    return Snapshot(host=host(host_name), at=at, monotonic_s=at, processes=processes, roots=(1,))


def observation() -> Observation:
    lock = f"/home/{USER}/.cache/ops/lock"
    frames = (
        Frame(function="wait", file=f"/home/{USER}/venv/lib/python3.11/site-packages/torch/utils/file_baton.py", line=51),
        Frame(function="load", file=f"/home/{USER}/train.py", line=3, values={"path": lock}, locals={"self": 4096}),
        Frame(function="alice_hook", file="<string>", line=1),
    )
    worker = Process(
        pid=2,
        ppid=1,
        start_ticks=2,
        name="VLLM::Worker_TP",
        state="S",
        uid=1000,
        cpu_ticks=9,
        cmdline=Ok(
            value=(
                "python3", "-m", "vllm.entrypoints.cli.main", "serve", f"/data/{USER}/llama", "--api-key", "correct horse",
                "battery", "--port", "8000", "--dist-init-addr", "other-node:5000", *SECRETS,
            ),
            at=1.0,
        ),
        environ=Ok(
            value={
                "RANK": "1", "NCCL_DEBUG": "WARN", "MASTER_ADDR": "other-node", "COMPANY_MOTTO": "correct horse",
                "VLLM_API_KEY": "correct horse staple", "TOKENIZERS_PARALLELISM": "false",
            },
            at=1.0,
        ),
        stacks=Ok(value=(PyStack(tid=2, name="MainThread", ident=1, active=False, owns_gil=False, frames=frames),), at=1.0),
        file_polls=Ok(value=(FilePoll(tid=2, frame=0, path=lock, until="gone", expression="while os.path.exists(p)"),), at=1.0),
    )  # fmt: skip
    sockets = (
        Socket(inode=1, family="tcp", state="ESTABLISHED", local="10.0.0.7:5000", remote="10.0.0.8:6000"),
        Socket(inode=2, family="tcp", state="ESTABLISHED", local="10.0.0.8:6000", remote="10.0.0.7:5000"),
        Socket(inode=3, family="tcp", state="LISTEN", local="127.0.0.1:9000", remote="0.0.0.0:*"),
        Socket(inode=4, family="tcp", state="ESTABLISHED", local="::1:9000", remote="2001:db8::7:7000"),
    )
    look = Snapshot(
        host=host(),
        at=1000.0,
        monotonic_s=10.0,
        processes=(process(1, "python3", f"--log=/var/log/{HOST}.log"), worker),
        roots=(1,),
        sockets=Ok(value=sockets, at=1.0),
        files=(FileFact(path=lock, exists=True, inode=9, openers_complete=True),),
    )
    return Observation(snapshots=(look, look))
