"""All facts about the machine, each on its own: one that fails leaves the others."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from gpudiag.doctor import caches, gpus, host, kernel_log, network, pci, shm, tools, variables
from gpudiag.doctor.reads import Root, attempt
from gpudiag.model.facts import Asked, System

_ON_HOST: Final = "look at it on the host"


def system(asked: Asked, root: Root | None = None) -> System:
    """Read the machine. `root` is a tree that stands for '/', in tests; what has no file (NVML, tools) is read for real."""
    root = root or Root()
    own = dict(os.environ)
    places = caches.Places(own, Path.home())
    with ThreadPoolExecutor(2) as pool:
        # Two children, which mostly wait: they run while this process reads files.
        nvml = pool.submit(gpus.gpus, root)
        programs = pool.submit(tools.tools)
        devices = attempt(lambda: pci.gpus(root, time.time()), missing="no PCI bus is visible here", help=_ON_HOST)
        return System(
            boot_at=attempt(lambda: host.boot_at(root)),
            cpu=attempt(lambda: host.cpu(root)),
            memory_bytes=attempt(lambda: host.memory_bytes(root)),
            kernel_module=attempt(
                lambda: host.kernel_module(root), missing="no NVIDIA kernel module is loaded", help="modprobe nvidia"
            ),
            pci=devices,
            kernel_options=attempt(lambda: host.kernel_options(root)),
            shared_memory=attempt(lambda: shm.shared_memory(root)),
            limits=attempt(lambda: host.limits(root)),
            cgroup=attempt(lambda: host.cgroup(root)),
            tracing=attempt(lambda: host.tracing(root)),
            numa_balancing=attempt(
                lambda: host.numa_balancing(root), missing="the kernel has no kernel.numa_balancing", help=_ON_HOST
            ),
            numa_calls=attempt(host.numa_calls),
            governors=attempt(
                lambda: host.governors(root), missing="the kernel does not set CPU frequencies (virtual machine)", help=_ON_HOST
            ),
            hugepages=attempt(lambda: host.hugepages(root), missing="the kernel has no transparent huge pages"),
            clock_synchronised=attempt(host.clock_synchronised),
            interfaces=attempt(lambda: network.interfaces(root)),
            infiniband=attempt(lambda: network.infiniband(root)),
            environment=variables.environment(own),
            nccl_files=variables.nccl_files(root, own),
            listeners=attempt(lambda: network.listeners(root)),
            jit_locks=attempt(lambda: caches.jit_locks(root, places)),
            caches=attempt(lambda: caches.caches(root, places)),
            p2p_caches=attempt(lambda: caches.p2p_caches(places)),
            kernel_log=attempt(
                lambda: kernel_log.kernel_log(root), missing="no /dev/kmsg here (container)", help="on the host: dmesg | grep Xid"
            ),
            spaces=attempt(lambda: caches.spaces(root, places, asked.model)),
            gpus=nvml.result(),
            tools=programs.result(),
        )
