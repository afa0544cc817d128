"""Reads everything NVML says about the GPUs of this machine, through ctypes.

needs: nothing but the driver's libnvidia-ml.so.1 (any interpreter will do)
timeout: 10 s; a driver in trouble may never answer, which is why this is a process that can be killed
writes: none

Answer: {"driver", "cuda", "gpus": [{NAME: {"ok": value} or {"error": NVML code, "why": text}}], "peers": [...]}, or
{"unavailable": why}. Layouts and constants: nvml.h of CUDA 13.0.
"""

import ctypes
import itertools
import json
import os
import sys

SCHEMA = "gpudiag.probe/1"
LIBRARY = os.environ.get("GPUDIAG_NVML_LIBRARY", "libnvidia-ml.so.1")

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND = 0, 2, 3, 13
WHY = {
    1: "not initialised",
    2: "invalid argument",
    3: "not supported by this GPU",
    4: "no permission",
    6: "not found",
    9: "the driver is not loaded",
    10: "timeout",
    12: "library not found",
    13: "the driver is too old to know this",
    15: "the GPU is lost",
    16: "a reset is required",
    18: "driver/library version mismatch",
    999: "unknown error",
}
UNCORRECTED, VOLATILE = 1, 0
MAX_NVLINKS = 18
MAX_PROCESSES = 512


class Memory(ctypes.Structure):
    """nvmlMemory_t, bytes."""

    _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, percent."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Pci(ctypes.Structure):
    """nvmlPciInfo_t as of nvmlDeviceGetPciInfo_v3."""

    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    ]


class Process(ctypes.Structure):
    """nvmlProcessInfo_t as of nvmlDeviceGetComputeRunningProcesses_v3."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Fabric(ctypes.Structure):
    """nvmlGpuFabricInfo_t, the first version."""

    _fields_ = [
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    ]


class NvmlError(Exception):
    """NVML answered with an error code."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


class Nvml:
    """The library with one function call a line."""

    def __init__(self):
        self.library = ctypes.CDLL(LIBRARY)

    def call(self, name, *arguments):
        function = getattr(self.library, name, None)
        if function is None:
            raise NvmlError(FUNCTION_NOT_FOUND)
        code = function(*arguments)
        if code != SUCCESS:
            raise NvmlError(code)

    def number(self, name, *arguments, kind=ctypes.c_uint):
        value = kind()
        self.call(name, *arguments, ctypes.byref(value))
        return value.value

    def text(self, name, *arguments):
        buffer = ctypes.create_string_buffer(96)
        self.call(name, *arguments, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode("utf-8", "replace")

    def structure(self, kind, name, *arguments):
        value = kind()
        self.call(name, *arguments, ctypes.byref(value))
        return value


def attempt(read):
    try:
        return {"ok": read()}
    except NvmlError as error:
        return {"error": error.code, "why": WHY.get(error.code, f"NVML error {error.code}")}


def cuda_version(nvml):
    version = nvml.number("nvmlSystemGetCudaDriverVersion_v2", kind=ctypes.c_int)
    return f"{version // 1000}.{version % 1000 // 10}"


def capability(nvml, gpu):
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvml.call("nvmlDeviceGetCudaComputeCapability", gpu, ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def bus_id(nvml, gpu):
    """In the form of sysfs: NVML writes a domain of eight digits, in capitals."""
    pci = nvml.structure(Pci, "nvmlDeviceGetPciInfo_v3", gpu)
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def mig(nvml, gpu):
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        nvml.call("nvmlDeviceGetMigMode", gpu, ctypes.byref(current), ctypes.byref(pending))
    except NvmlError as error:
        if error.code == NOT_SUPPORTED:
            return False
        raise
    return bool(current.value)


def nvlinks(nvml, gpu):
    """Whether each link is active; a GPU refuses the first number that it has no link for."""
    states = []
    while len(states) < MAX_NVLINKS and (state := nvlink(nvml, gpu, len(states))) is not None:
        states.append(state)
    return states


def nvlink(nvml, gpu, number):
    try:
        return bool(nvml.number("nvmlDeviceGetNvLinkState", gpu, ctypes.c_uint(number)))
    except NvmlError as error:
        if error.code in (INVALID_ARGUMENT, NOT_SUPPORTED):
            return None
        raise


def clocks(nvml, gpu):
    try:
        return nvml.number("nvmlDeviceGetCurrentClocksEventReasons", gpu, kind=ctypes.c_uint64)
    except NvmlError as error:
        if error.code != FUNCTION_NOT_FOUND:
            raise
        return nvml.number("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, kind=ctypes.c_uint64)


def rows(nvml, gpu, which):
    values = [ctypes.c_uint() for _ in range(4)]
    nvml.call("nvmlDeviceGetRemappedRows", gpu, *[ctypes.byref(v) for v in values])
    return bool(values[which].value)


def processes(nvml, gpu):
    count = ctypes.c_uint(MAX_PROCESSES)
    table = (Process * MAX_PROCESSES)()
    nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", gpu, ctypes.byref(count), table)
    # All bits set is NVML's 'not available', which Windows and MIG give.
    return [[p.pid, 0 if p.used == 2**64 - 1 else p.used] for p in table[: count.value]]


def fabric(nvml, gpu):
    return nvml.structure(Fabric, "nvmlDeviceGetGpuFabricInfo", gpu).state


def ecc(nvml, gpu):
    return nvml.number("nvmlDeviceGetTotalEccErrors", gpu, UNCORRECTED, VOLATILE, kind=ctypes.c_ulonglong)


def describe(nvml, gpu):
    read = {
        "uuid": lambda: nvml.text("nvmlDeviceGetUUID", gpu),
        "name": lambda: nvml.text("nvmlDeviceGetName", gpu),
        "bus_id": lambda: bus_id(nvml, gpu),
        "capability": lambda: capability(nvml, gpu),
        "memory_bytes": lambda: nvml.structure(Memory, "nvmlDeviceGetMemoryInfo", gpu).total,
        "memory_used_bytes": lambda: nvml.structure(Memory, "nvmlDeviceGetMemoryInfo", gpu).used,
        "utilization_percent": lambda: nvml.structure(Utilization, "nvmlDeviceGetUtilizationRates", gpu).gpu,
        "vbios": lambda: nvml.text("nvmlDeviceGetVbiosVersion", gpu),
        "persistence": lambda: bool(nvml.number("nvmlDeviceGetPersistenceMode", gpu)),
        "compute_mode": lambda: nvml.number("nvmlDeviceGetComputeMode", gpu),
        "mig": lambda: mig(nvml, gpu),
        "performance_state": lambda: nvml.number("nvmlDeviceGetPerformanceState", gpu),
        "clocks_event_reasons": lambda: clocks(nvml, gpu),
        "link_gen": lambda: nvml.number("nvmlDeviceGetCurrPcieLinkGeneration", gpu),
        "link_gen_max": lambda: nvml.number("nvmlDeviceGetMaxPcieLinkGeneration", gpu),
        "link_width": lambda: nvml.number("nvmlDeviceGetCurrPcieLinkWidth", gpu),
        "link_width_max": lambda: nvml.number("nvmlDeviceGetMaxPcieLinkWidth", gpu),
        "nvlinks": lambda: nvlinks(nvml, gpu),
        "fabric_state": lambda: fabric(nvml, gpu),
        "ecc_uncorrected": lambda: ecc(nvml, gpu),
        "rows_pending": lambda: rows(nvml, gpu, 2),
        "rows_failed": lambda: rows(nvml, gpu, 3),
        "processes": lambda: processes(nvml, gpu),
    }
    return {name: attempt(one) for name, one in read.items()}


def peers(nvml, handles):
    """What the driver says about reading (0) and writing (1) from each GPU to each other."""
    found = []
    for source, target in itertools.permutations(range(len(handles)), 2):
        pair = handles[source], handles[target]
        try:
            found.append([source, target, *(nvml.number("nvmlDeviceGetP2PStatus", *pair, index) for index in (0, 1))])
        except NvmlError:
            # A driver that knows no such question says nothing about any pair.
            return []
    return found


def answer():
    try:
        nvml = Nvml()
    except OSError as error:
        return {"unavailable": f"no NVIDIA driver library ({error})"}
    try:
        nvml.call("nvmlInit_v2")
    except NvmlError as error:
        return {"unavailable": f"NVML does not start: {WHY.get(error.code, error.code)}"}
    try:
        handles = []
        for index in range(nvml.number("nvmlDeviceGetCount_v2")):
            handle = ctypes.c_void_p()
            nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            handles.append(handle)
        return {
            "driver": nvml.text("nvmlSystemGetDriverVersion"),
            "cuda": cuda_version(nvml),
            "gpus": [describe(nvml, handle) for handle in handles],
            "peers": peers(nvml, handles),
        }
    except NvmlError as error:
        return {"unavailable": f"NVML: {WHY.get(error.code, error.code)}"}


def main():
    result = {"schema": SCHEMA, "probe": "read_gpus", "ok": True}
    result.update(answer())
    result["ok"] = "unavailable" not in result
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
