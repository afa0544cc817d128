"""The program that talks to the NVIDIA driver: `python -m gpudiag.collect.nvml_child PARENT_PID health|state`.

A driver call may never return, so it is made in a child that can be killed. It answers every byte on stdin with one frame
(4-byte big-endian length, MessagePack) on stdout, and names on stderr, one line each, what it is about to ask the driver.
"""

from __future__ import annotations

import os
import sys

from gpudiag.collect.nvml_protocol import Answer, frame
from gpudiag.collect.parent_death import die_with
from gpudiag.model.gpu import Gpu, GpuInventory


def main() -> None:
    """Answer until stdin ends."""
    die_with(int(sys.argv[1]))
    session = _open()
    while sys.stdin.buffer.read(1):
        answer = session if isinstance(session, Answer) else session.sample()
        sys.stdout.buffer.write(frame(answer))
        sys.stdout.buffer.flush()


def _open() -> _Session | Answer:
    _say("nvmlInit")
    try:
        from gpudiag.collect import nvml_read
    except ModuleNotFoundError:
        return Answer(unavailable="nvidia-ml-py is not installed", help="pip install nvidia-ml-py")
    try:
        nvml_read.N.nvmlInit()
        return _Session()
    except nvml_read.N.NVMLError as error:
        return Answer(unavailable=f"the NVIDIA driver does not answer: {error}", help="nvidia-smi")


class _Session:
    """An open connection to the driver."""

    def __init__(self) -> None:
        from gpudiag.collect import nvml_read

        self._lost = nvml_read.N.NVMLError
        self._driver = _text(nvml_read.N.nvmlSystemGetDriverVersion())
        self._devices: list[nvml_read.Device] = []
        self._gone: dict[int, str] = {}
        for index in range(nvml_read.N.nvmlDeviceGetCount()):
            _say(f"handle of GPU {index}")
            health = sys.argv[2] == "health"
            try:
                whole = nvml_read.Device(index, _say, health=health)
                self._devices.append(whole)
                self._devices += [nvml_read.Device(index, _say, health=False, instance=part) for part in whole.instances]
            except nvml_read.N.NVMLError as error:
                self._gone[index] = str(error)

    def sample(self) -> Answer:
        gpus: list[Gpu] = []
        lost = dict(self._gone)
        for device in self._devices:
            try:
                gpus.append(device.sample())
            except self._lost as error:
                lost[device.index] = str(error)
        return Answer(inventory=GpuInventory(driver=self._driver, gpus=tuple(gpus), lost=lost))


def _say(what: str) -> None:
    os.write(2, f"{what}\n".encode())


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
