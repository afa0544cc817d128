"""Facts are what the tree says; what it does not show is unavailable."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from gpudiag.doctor import caches, host, interpreter, kernel_log, network, pci, probe, reads, shm, variables
from gpudiag.doctor.reads import Root, attempt
from gpudiag.doctor.system import system
from gpudiag.model.facts import Asked, PciGpu
from gpudiag.model.reading import Failed, Ok, Unavailable
from tests.doctor.trees import config_space, device, put

PORT, SWITCH_UP, DOWN, GPU = "0000:00:01.0", "0000:10:00.0", "0000:11:00.0", "0000:12:00.0"


def only(root: Path) -> PciGpu:
    (found,) = pci.gpus(Root(root), 0.0)
    return found


def test_acs_of_every_bridge_above_a_gpu(tmp_path: Path) -> None:
    config = {PORT: config_space(0x1D), SWITCH_UP: config_space(None), DOWN: config_space(0)}
    device(tmp_path, [PORT, SWITCH_UP, DOWN, GPU], config=config, domain="DMA-FQ")
    gpu = only(tmp_path)
    assert [(b.address, b.acs.value) for b in gpu.bridges if isinstance(b.acs, Ok)] == [
        (DOWN, ()),
        (SWITCH_UP, ()),
        (PORT, ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")),
    ]
    assert isinstance(gpu.iommu_domain, Ok)
    assert (gpu.iommu_domain.value, gpu.link_width) == ("DMA-FQ", "16")


def test_a_bridge_without_extended_configuration_has_no_acs(tmp_path: Path) -> None:
    device(tmp_path, [PORT, GPU], config={PORT: config_space(None, size=256)})
    assert only(tmp_path).bridges[0].acs == Ok(value=(), at=0.0)


def test_configuration_without_its_end_is_no_answer() -> None:
    assert pci.acs_controls(config_space(0x1D, size=0x142)) is None
    assert pci.acs_controls(config_space(0x1D)[:64]) is None


def test_a_loop_of_capabilities_ends() -> None:
    data = bytearray(config_space(None))
    data[0x100:0x104] = (0x100 << 20 | 1 << 16 | 1).to_bytes(4, "little")
    assert pci.acs_controls(bytes(data)) == ()


def test_a_machine_without_pci_is_unavailable(tmp_path: Path) -> None:
    assert isinstance(attempt(lambda: pci.gpus(Root(tmp_path), 0.0)), Unavailable)


def test_the_kernel_module(tmp_path: Path) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: 13\n"
    put(tmp_path, "proc/driver/nvidia/version", text)
    module = host.kernel_module(Root(tmp_path))
    assert (module.version, module.open) == ("580.159.04", True)


def test_the_tightest_limit_of_nested_groups_counts(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/pod/container\n")
    put(tmp_path, "sys/fs/cgroup/pod/memory.max", "1000\n")
    put(tmp_path, "sys/fs/cgroup/pod/container/memory.max", "max\n")
    put(tmp_path, "sys/fs/cgroup/pod/container/pids.max", "77\n")
    group = host.cgroup(Root(tmp_path))
    assert (group.memory_bytes, group.pids) == (1000, 77)


def test_groups_of_version_1(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "7:memory:/docker/x\n6:cpu,cpuacct:/docker/x\n")
    put(tmp_path, "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "4096\n")
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert host.cgroup(Root(tmp_path)).memory_bytes == 4096


def test_limits_of_this_process() -> None:
    limits = {limit.name: limit for limit in host.limits(Root())}
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (limits["Max open files"].soft, limits["Max open files"].hard) == (soft, hard)


def test_a_listener_and_its_owner() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        (found,) = [one for one in network.listeners(Root()) if one.port == port]
    assert (found.address, found.pid) == ("127.0.0.1", os.getpid())


def test_xids_with_the_address_that_sysfs_uses() -> None:
    log = "[  9.1] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\nnothing\n"
    (found,) = kernel_log.xids_in(log)
    assert (found.number, found.bus_id) == (79, "0000:65:00.0")


def places(home: Path) -> caches.Places:
    return caches.Places({}, home)


def test_a_lock_that_nobody_holds_and_one_that_is_locked(tmp_path: Path) -> None:
    left = put(tmp_path, ".cache/torch_extensions/py312_cu130/ops/lock", "")
    held = put(tmp_path, ".cache/torch_extensions/py312_cu130/other/lock", "")
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = {lock.path: lock for lock in caches.jit_locks(Root(), places(tmp_path))}
    assert found[str(left)].by_existence
    assert (found[str(left)].held, found[str(held)].held) == (False, True)


def test_shared_memory_that_nobody_uses_any_more() -> None:
    names = [Path(f"/dev/shm/psm_gpudiag_{os.getpid()}_{which}") for which in ("open", "mapped", "left")]
    try:
        for name in names:
            name.write_bytes(bytes(4096))
        with names[0].open() as opened, names[1].open("r+b") as file, mmap.mmap(file.fileno(), 4096):
            file.close()
            answer = probe.run("find_unused_files", [str(n) for n in names], limit_s=20)
            left = {one.path for one in shm.shared_memory(Root()).leftovers}
            assert opened.readable()
    finally:
        for name in names:
            name.unlink(missing_ok=True)
    assert isinstance(answer, Ok)
    assert answer.value["unused"] == [str(names[2])]
    # Where some process may not be looked at, nothing is called left over.
    assert left & set(map(str, names)) == ({str(names[2])} if answer.value["complete"] else set())


def test_caches_that_do_not_exist_yet_are_judged_by_what_is_above_them(tmp_path: Path) -> None:
    (triton,) = [c for c in caches.caches(Root(), places(tmp_path)) if c.purpose == "Triton"]
    assert (triton.exists, triton.space.writable) == (False, True)
    assert triton.space.path == str(tmp_path)


@pytest.mark.parametrize(("text", "pairs"), [('{"0->1": true, "1->0": false}', {"0->1": True, "1->0": False}), ('{"0->', None)])
def test_what_an_engine_remembers_about_peers(tmp_path: Path, text: str, pairs: dict[str, bool] | None) -> None:
    put(tmp_path, ".cache/vllm/gpu_p2p_access_cache_for_0,1.json", text)
    (found,) = caches.p2p_caches(places(tmp_path))
    assert found.pairs == pairs


def test_secrets_do_not_get_into_facts() -> None:
    kept = variables.environment({"NCCL_DEBUG": "INFO", "VLLM_API_KEY": "s", "HF_TOKEN": "s", "PASSWORD": "s", "CUDA_HOME": "/c"})
    assert kept == {"NCCL_DEBUG": "INFO", "CUDA_HOME": "/c"}


def test_a_fifo_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    fifo = tmp_path / "type"
    os.mkfifo(fifo)
    assert reads.bounded(fifo) == b""


def test_a_read_never_takes_more_than_its_bound(tmp_path: Path) -> None:
    assert len(reads.bounded(put(tmp_path, "big", bytes(5000)), 100)) == 100


@pytest.mark.parametrize(
    ("error", "kind"),
    [(FileNotFoundError(2, "no", "/x"), Unavailable), (PermissionError(13, "no", "/x"), Unavailable), (ValueError("x"), Failed)],
)
def test_how_an_attempt_ends(error: Exception, kind: type) -> None:
    def read() -> int:
        raise error

    assert isinstance(attempt(read), kind)


def test_the_file_system_of_a_path() -> None:
    assert shm.space(Root(), "/proc/self").fs_type == "proc"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_clock_as_a_c_program_sees_it(tmp_path: Path) -> None:
    source = (
        "#include <stdio.h>\n#include <sys/timex.h>\n"
        "int main(void) { struct timex t = {0}; adjtimex(&t); return !!(t.status & STA_UNSYNC); }\n"
    )
    program = tmp_path / "clock"
    subprocess.run(["gcc", "-x", "c", "-", "-o", str(program)], input=source, text=True, check=True, timeout=60)
    assert host.clock_synchronised() == (subprocess.run([str(program)], timeout=60).returncode == 0)


def test_this_machine_is_read_without_a_failure() -> None:
    read = system(Asked())
    failed = {n: v for n in type(read).__struct_fields__ if isinstance(v := getattr(read, n), Failed)}
    assert failed == {}
    assert isinstance(read.tracing, Ok)


def test_an_engine_on_pythonpath_is_one_that_every_interpreter_has(tmp_path: Path) -> None:
    (tmp_path / "site/vllm").mkdir(parents=True)
    (tmp_path / "site/vllm/__init__.py").touch()
    program = tmp_path / "bin/python3"
    program.parent.mkdir()
    program.touch(0o755)
    found = {"PATH": str(program.parent), "PYTHONPATH": f":{tmp_path / 'site'}"}
    assert interpreter.choose(found, "vllm") == str(program)
    assert interpreter.choose(found, "sglang") is None


def test_an_interpreter_with_an_engine_is_found_without_running_it(tmp_path: Path) -> None:
    program = put(tmp_path, "venv/bin/python", "#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    put(tmp_path, "venv/lib/python3.12/site-packages/vllm/__init__.py", "raise RuntimeError\n")
    found = {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": "/nowhere"}
    assert interpreter.choose(found, None) == str(program)
    assert interpreter.choose(found, "sglang") is None


def test_nccls_files(tmp_path: Path) -> None:
    own = put(tmp_path, "own.conf", "NCCL_DEBUG=INFO\n")
    put(tmp_path, "etc/nccl.conf", "NCCL_IB_DISABLE=1\n")
    found = variables.nccl_files(Root(tmp_path), {"NCCL_CONF_FILE": str(own)})
    assert json.loads(json.dumps(found)) == {
        str(own): "NCCL_DEBUG=INFO\n",
        str(tmp_path / "etc/nccl.conf"): "NCCL_IB_DISABLE=1\n",
    }
