"""Each check of the machine fires on a machine with one thing wrong, is quiet on its healthy twin, and never guesses."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from gpudiag.model.facts import (
    Asked,
    Bridge,
    Cache,
    Cgroup,
    Cpu,
    Facts,
    GpuProcess,
    GpuSet,
    JitLock,
    KernelLog,
    KernelModule,
    Leftover,
    Limit,
    Listener,
    P2pCache,
    PeerLink,
    SharedMemory,
    Space,
    Tracing,
    Xid,
)
from gpudiag.model.modelfiles import ModelConfig, ModelFiles
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.rules.preflight import judge, registry
from tests.doctor.machines import AT, GIB, facts, gpu, gpu_set, ok, pci, refused, result

SPACE = Space(path="/data", fs_type="ext4", total_bytes=100 * GIB, free_bytes=50 * GIB)
CLOSED = KernelModule(version="580.159.04", open=False, text="NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04")
MODEL = ModelFiles(
    path="/m",
    config=ModelConfig(
        architectures=("LlamaForCausalLM",),
        model_type="llama",
        hidden_size=4096,
        vocab_size=1000,
        layers=32,
        max_positions=4096,
        quantization=None,
        dtype="bfloat16",
    ),
    weight_bytes=100 * GIB,
    shards=3,
)


def lock(**changes: Any) -> JitLock:
    plain: dict[str, Any] = {"path": "/c/ops/lock", "age_s": 3600.0, "held": False, "by_existence": True}
    return JitLock(**{**plain, **changes})


def shm(total: int, free: int, *left: Leftover) -> Ok[SharedMemory]:
    return ok(SharedMemory(space=Space(path="/dev/shm", fs_type="tmpfs", total_bytes=total, free_bytes=free), leftovers=left))


def bridge(address: str, *controls: str) -> Bridge:
    return Bridge(address=address, acs=ok(controls))


def behind(*chains: tuple[Bridge, ...], **changes: Any) -> Ok[tuple[Any, ...]]:
    return ok(tuple(pci(i, bridges=chain, **changes) for i, chain in enumerate(chains)))


ROOT = bridge("0000:00:01.0", "ReqRedir", "CmpltRedir")
UP = bridge("0000:10:00.0")
TENSOR = Asked(tp=2)

FIRES: dict[str, tuple[str, Facts, str]] = {
    "module and library": ("101", facts(gpus=gpu_set(driver="570.10.01")), "570.10.01"),
    "NVML says so itself": (
        "101",
        facts(gpus=Unavailable(reason="NVML does not start: driver/library version mismatch", help="")),
        "another version",
    ),
    "Blackwell on an old driver": ("102", facts(gpus=gpu_set(driver="550.54.14", cuda="12.4")), "12.0"),
    "closed module": ("128", facts(kernel_module=ok(CLOSED)), "closed"),
    "memory held": (
        "115",
        facts(
            gpus=gpu_set(
                gpu(memory_used_bytes=ok(40 * GIB), processes=ok((GpuProcess(pid=7, memory_bytes=39 * GIB, name="python"),)))
            )
        ),
        "40 GiB",
    ),
    "wedged": ("507", facts(gpus=gpu_set(gpu(utilization_percent=ok(100)))), "busy"),
    "two kinds of GPU": ("121", facts(gpus=gpu_set(gpu(0), gpu(1, name="NVIDIA L4"))), "model"),
    "one-way peers": (
        "121",
        facts(
            gpus=gpu_set(
                gpu(0),
                gpu(1),
                peers=(PeerLink(source=0, target=1, read=0, write=0), PeerLink(source=1, target=0, read=5, write=5)),
            )
        ),
        "0 to 1",
    ),
    "MIG": ("130", facts(TENSOR, gpus=gpu_set(gpu(mig=ok(True)))), "MIG"),
    "prohibited": ("130", facts(gpus=gpu_set(gpu(compute_mode=ok(2)))), "no process"),
    "persistence": ("129", facts(gpus=gpu_set(gpu(persistence=ok(False)))), "Persistence"),
    "Xid 79": ("501", facts(kernel_log=ok(KernelLog(xids=(Xid(number=79, bus_id="0000:01:00.0", line="NVRM: Xid ..."),)))), "79"),
    "ECC": ("502", facts(gpus=gpu_set(gpu(ecc_uncorrected=ok(2)))), "2 uncorrectable"),
    "rows pending": ("503", facts(gpus=gpu_set(gpu(rows_pending=ok(True)))), "next reset"),
    "rows gone": ("503", facts(gpus=gpu_set(gpu(rows_failed=ok(True)))), "no longer"),
    "hot": ("505", facts(gpus=gpu_set(gpu(clocks_event_reasons=ok(0x40)))), "temperature"),
    "IOMMU": ("110", facts(pci=behind((), (), iommu_domain=ok("DMA-FQ"))), "translates"),
    "ACS": (
        "111",
        facts(pci=behind((bridge("0000:11:00.0", "ReqRedir"), UP, ROOT), (bridge("0000:12:00.0"), UP, ROOT))),
        "redirect",
    ),
    "narrow link": ("504", facts(gpus=gpu_set(gpu(link_width=ok(4)))), "4 lanes"),
    "slow link under load": (
        "504",
        facts(gpus=gpu_set(gpu(link_gen=ok(3), performance_state=ok(0), utilization_percent=ok(50)))),
        "generation 3",
    ),
    "narrow link without a driver": ("504", facts(gpus=refused(), pci=ok((pci(0, link_width="8"),))), "8 lanes"),
    "NVLink down": ("404", facts(gpus=gpu_set(gpu(nvlinks=ok((True, True, False))))), "2 of 3"),
    "fabric": ("405", facts(gpus=gpu_set(gpu(fabric_state=ok(2)))), "in progress"),
    "vLLM trusts": ("127", facts(Asked(engine="vllm", tp=2)), "trust"),
    "Docker's shm": ("108", facts(shared_memory=shm(64 << 20, 60 << 20)), "64 MiB"),
    "small for eight": ("108", facts(Asked(tp=8), shared_memory=shm(2 * GIB, 2 * GIB)), "8.0 GiB"),
    "full of leftovers": (
        "108",
        facts(shared_memory=shm(8 * GIB, GIB // 8, Leftover(path="/dev/shm/psm_1", size_bytes=7 * GIB))),
        "7.0 GiB",
    ),
    "Yama": ("109", facts(tracing=ok(Tracing(yama_scope=1, can_trace=False, uid=1000))), "scope 1"),
    "files": ("118", facts(limits=ok((Limit(name="Max open files", soft=1024, hard=4096),))), "4096"),
    "pids": ("118", facts(cgroup=ok(Cgroup(memory_bytes=None, pids=100, path="/x"))), "100 processes"),
    "locked memory": (
        "118",
        facts(infiniband=ok(("mlx5_0",)), limits=ok((Limit(name="Max locked memory", soft=65536, hard=65536),))),
        "RDMA",
    ),
    "small container": ("119", facts(cgroup=ok(Cgroup(memory_bytes=64 * GIB, pids=None, path="/x")), model=ok(MODEL)), "64 GiB"),
    "NUMA balancing": ("131", facts(numa_balancing=ok(True)), "NUMA"),
    "governor": ("132", facts(governors=ok(("powersave",))), "powersave"),
    "full disk": ("133", facts(spaces=ok((msgspec.structs.replace(SPACE, free_bytes=GIB // 2),))), "512 MiB"),
    "a clock that nobody keeps": ("141", facts(clock_synchronised=ok(False)), "put in order by time"),
    "huge pages": ("139", facts(hugepages=ok("never")), "huge pages"),
    "seccomp": ("140", facts(numa_calls=ok(False)), "get_mempolicy"),
    "shim": ("125", facts(environment={"LD_PRELOAD": "/usr/lib/libvgpu.so:/x.so"}), "libvgpu"),
    "stale lock": ("113", facts(jit_locks=ok((lock(),))), "/c/ops/lock"),
    "read-only cache": (
        "136",
        facts(
            caches=ok((Cache(purpose="Triton", path="/c", exists=True, space=msgspec.structs.replace(SPACE, writable=False)),))
        ),
        "cannot be written",
    ),
    "cache of before the boot": (
        "126",
        facts(p2p_caches=ok((P2pCache(path="/c.json", modified_at=AT - 5000, pairs={}),))),
        "last boot",
    ),
    "broken cache": ("126", facts(p2p_caches=ok((P2pCache(path="/c.json", modified_at=AT, pairs=None),))), "whole JSON"),
    "port": (
        "114",
        facts(Asked(ports=(8000,)), listeners=ok((Listener(port=8000, address="0.0.0.0", pid=9, name="vllm"),))),
        "8000",
    ),
    "missing shard": ("120", facts(model=ok(msgspec.structs.replace(MODEL, missing=("model-2.safetensors",)))), "model-2"),
}

QUIET: dict[str, tuple[str, Facts, str]] = {
    "idle link is slow": ("504", facts(gpus=gpu_set(gpu(link_gen=ok(1)))), "ok"),
    "NVLink carries the traffic": (
        "110",
        facts(gpus=gpu_set(gpu(0, nvlinks=ok((True,))), gpu(1, nvlinks=ok((True,))))),
        "skipped",
    ),
    "redirection above both GPUs": ("111", facts(pci=behind((bridge("a"), UP, ROOT), (bridge("b"), UP, ROOT))), "ok"),
    "application Xid": ("501", facts(kernel_log=ok(KernelLog(xids=(Xid(number=13, bus_id="b", line="l"),)))), "ok"),
    "a build that runs": ("113", facts(jit_locks=ok((lock(builders=(5,)),))), "ok"),
    "a lock that is held": ("113", facts(jit_locks=ok((lock(held=True),))), "ok"),
    "a file lock": ("113", facts(jit_locks=ok((lock(by_existence=False),))), "ok"),
    "allocator preloaded": ("125", facts(environment={"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}), "ok"),
    "vLLM asked to test": ("127", facts(Asked(engine="vllm", tp=2), environment={"VLLM_SKIP_P2P_CHECK": "0"}), "ok"),
    "no GPU at all": ("115", facts(gpus=refused(), pci=ok(())), "skipped"),
    "root traces in spite of Yama": ("109", facts(tracing=ok(Tracing(yama_scope=1, can_trace=True, uid=0))), "ok"),
}

UNKNOWN: dict[str, tuple[str, Facts]] = {
    "ACS hidden from the unprivileged": (
        "111",
        facts(pci=behind((Bridge(address="a", acs=refused()),), (Bridge(address="b", acs=refused()),))),
    ),
    "ACS in a virtual machine": ("111", facts(cpu=ok(Cpu(vendor="GenuineIntel", cores=8, virtual=True)))),
    "IOMMU in a virtual machine": (
        "110",
        facts(cpu=ok(Cpu(vendor="GenuineIntel", cores=8, virtual=True)), pci=behind((), (), iommu_domain=ok(""))),
    ),
    "no kernel log": ("501", facts(kernel_log=refused())),
    "NVML hangs": ("115", facts(gpus=Failed(error="no answer within 10 s"))),
    "governor of a guest": ("132", facts(governors=refused())),
    "memory not told": ("115", facts(gpus=gpu_set(gpu(memory_used_bytes=refused())))),
}


@pytest.mark.parametrize("case", FIRES)
def test_fires(case: str) -> None:
    code, given, word = FIRES[case]
    found = result(code, given)
    assert found.status == "finding", found.detail
    assert word in f"{found.findings[0].title} {found.findings[0].evidence}"
    assert found.findings[0].next_steps


@pytest.mark.parametrize("case", QUIET)
def test_is_quiet(case: str) -> None:
    code, given, status = QUIET[case]
    assert result(code, given).status == status


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_could_not_be_read_is_unknown(case: str) -> None:
    code, given = UNKNOWN[case]
    found = result(code, given)
    assert found.status == "unknown"
    assert found.detail


def test_a_healthy_machine_has_no_finding() -> None:
    results = judge.judge(facts(), registry.CHECKS)
    assert [r.info.code for r in results if r.status == "finding"] == []
    assert [r.info.code for r in results if "itself broke" in r.detail] == []


@pytest.mark.parametrize("fabric", [0, 3])
def test_a_healthy_virtual_machine_with_two_h200s_has_no_finding(fabric: int) -> None:
    """As a real one was described: no bridges, no IOMMU; NVML and nvidia-smi may be of two minds on the fabric."""
    h200 = {
        "name": "NVIDIA H200",
        "capability": ok("9.0"),
        "memory_bytes": ok(143771 << 20),
        "memory_used_bytes": ok(1 << 20),
        "vbios": ok("96.00.A5.00.1A"),
        "performance_state": ok(0),
        "link_gen": ok(5),
        "nvlinks": ok((True,) * 18),
        "fabric_state": ok(fabric),
    }
    peers = tuple(PeerLink(source=a, target=b, read=0, write=0) for a, b in ((0, 1), (1, 0)))
    given = facts(
        TENSOR,
        gpus=gpu_set(gpu(0, **h200), gpu(1, **h200), peers=peers),
        cpu=ok(Cpu(vendor="GenuineIntel", cores=32, virtual=True)),
        pci=behind((), (), iommu_domain=ok(""), link_width="0"),
        governors=refused(),
    )
    results = judge.judge(given, registry.CHECKS)
    assert [(r.info.code, r.detail) for r in results if r.status == "finding"] == []
    assert [r.info.code for r in results if r.status == "unknown"] == ["GPD132"]


def test_every_system_check_has_a_machine_on_which_it_fires() -> None:
    # 112 has a table of its own below; what is found by --active has a file of its own.
    covered = {f"GPD{code}" for code, _, _ in FIRES.values()} | {"GPD112", "GPD218", "GPD219", "GPD223", "GPD403"}
    here = {c.info.code for c in registry.CHECKS if c.evaluate.__module__.startswith("gpudiag.rules.system")}
    assert here - covered == set()


@pytest.mark.parametrize(
    ("environment", "asked", "words"),
    [
        ({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"}, Asked(), "void"),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, Asked(), "sockets"),
        ({"NCCL_P2P_DISABLE": "1"}, Asked(), "custom all-reduce"),
        ({"NCCL_SOCKET_IFNAME": "ib0"}, Asked(), "leaves no network interface"),
        ({"NCCL_SOCKET_IFNAME": "^eth,lo"}, Asked(), "leaves no network interface"),
        ({"NCCL_IB_HCA": "mlx5_0"}, Asked(), "no InfiniBand device"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, Asked(), "after every kernel"),
        ({"NCCL_DEBUG": "TRACE"}, Asked(), "line a call"),
        ({"NCCL_ASYNC_ERROR_HANDLING": "1"}, Asked(), "renamed"),
    ],
)
def test_variables_that_contradict(environment: dict[str, str], asked: Asked, words: str) -> None:
    found = result("112", facts(asked, environment=environment))
    assert any(words in f.title for f in found.findings)


@pytest.mark.parametrize(
    "environment",
    [{"NCCL_SOCKET_IFNAME": "eth"}, {"NCCL_SOCKET_IFNAME": "=eth0"}, {"NCCL_SOCKET_IFNAME": "^docker"}, {"NCCL_DEBUG": "WARN"}],
)
def test_variables_that_fit(environment: dict[str, str]) -> None:
    assert result("112", facts(environment=environment)).status == "ok"


def test_a_setting_in_nccls_own_file_counts_and_is_named() -> None:
    found = result("112", facts(nccl_files={"/etc/nccl.conf": "# ours\nNCCL_DEBUG=TRACE  # loud\n"}))
    assert "/etc/nccl.conf" in found.findings[0].evidence[0].excerpt


def test_an_amd_host_with_consumer_gpus_is_the_one_that_hangs() -> None:
    translating = behind((), (), iommu_domain=ok("DMA"))
    amd = result("110", facts(pci=translating))
    intel = result("110", facts(pci=translating, cpu=ok(Cpu(vendor="GenuineIntel", cores=8, virtual=False))))
    assert (amd.findings[0].severity, intel.findings[0].severity) == ("error", "warning")


def test_a_broken_check_is_unknown_and_stops_no_other() -> None:
    broken = facts(gpus=ok(GpuSet(driver=None, gpus=(gpu(),))))  # type: ignore[arg-type]
    results = {r.info.code: r for r in judge.judge(broken, registry.CHECKS)}
    assert results["GPD101"].status == "unknown"
    assert re.search("itself broke", results["GPD101"].detail)
    assert results["GPD108"].status == "ok"


def test_facts_give_the_same_report_after_a_journey_as_json() -> None:
    given = FIRES["memory held"][1]
    again = msgspec.json.decode(msgspec.json.encode(given), type=Facts)
    assert judge.judge(again, registry.CHECKS) == judge.judge(given, registry.CHECKS)


def test_the_report_keeps_the_contract() -> None:
    given = FIRES["stale lock"][1]
    report = judge.report(given, judge.judge(given, registry.CHECKS), command="doctor", version="0.1.0")
    assert report.schema == "gpudiag.report/1"
    assert report.target is None
    assert (report.verdict.status, report.verdict.code) == ("finding", "GPD113")
    assert report.verdict.culprits[0].path == "/c/ops/lock"
    assert {c.status for c in report.checks} >= {"ok", "finding", "skipped"}


def test_unknown_is_listed_as_not_read_and_never_as_ok() -> None:
    given = facts(governors=refused())
    report = judge.report(given, judge.judge(given, registry.CHECKS), command="doctor", version="0.1.0")
    assert [n.source for n in report.not_read] == ["GPD132 cpu-governor-slow"]
    assert report.verdict.status == "healthy"
    assert "1 could not be made" in report.verdict.title
