"""GPUs on the PCI bus, the bridges above them and what the IOMMU does for them; from sysfs alone."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from gpudiag.doctor.reads import Root, bounded
from gpudiag.model.facts import Bridge, PciGpu
from gpudiag.model.reading import Failed, Ok, Reading, Unavailable

NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
"""PCI class of display controllers, 3D controllers included."""

ACS_BITS: Final = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
"""Bits of the ACS control register: PCI Express Base Specification, 7.7.11.3; lspci's names."""
_ACS_CAPABILITY: Final = 0x000D
_EXTENDED: Final = 0x100
"""Where extended capabilities begin; a conventional device has no more than these 256 bytes."""
_CONFIG_BYTES: Final = 4096
_UNPRIVILEGED_BYTES: Final = 64
"""What the kernel gives of config space without CAP_SYS_ADMIN: drivers/pci/pci-sysfs.c, pci_read_config."""


def gpus(root: Root, at: float) -> tuple[PciGpu, ...]:
    """Every NVIDIA display controller, by address. An empty answer is none at all; no /sys/bus/pci raises OSError."""
    found = []
    for name in sorted(os.listdir(root.at("sys/bus/pci/devices"))):
        device = root.at(f"sys/bus/pci/devices/{name}")
        if _line(device / "vendor") == NVIDIA and _line(device / "class").startswith(_DISPLAY):
            found.append(_gpu(name, device, at))
    return tuple(found)


def _gpu(name: str, device: Path, at: float) -> PciGpu:
    numa = _line(device / "numa_node")
    return PciGpu(
        address=name,
        bridges=tuple(Bridge(address=b.name, acs=_acs_of(b, at)) for b in _above(device)),
        iommu_domain=_domain(device, at),
        link_speed=_line(device / "current_link_speed"),
        link_width=_line(device / "current_link_width"),
        link_speed_max=_line(device / "max_link_speed"),
        link_width_max=_line(device / "max_link_width"),
        numa_node=int(numa) if numa.lstrip("-").isdigit() else -1,
    )


def _line(path: Path) -> str:
    """An attribute, '' where this device has none."""
    try:
        return bounded(path, 4096).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _above(device: Path) -> list[Path]:
    """The bridges from the device up to its root port: sysfs nests a device in the directory of its bridge."""
    found = []
    place = device.resolve().parent
    while place.name.count(":") == 2:
        found.append(place)
        place = place.parent
    return found


def _domain(device: Path, at: float) -> Reading[str]:
    group = device / "iommu_group"
    if not group.exists():
        return Ok(value="", at=at)
    try:
        return Ok(value=bounded(group / "type", 64).decode("ascii", "replace").strip(), at=at)
    except OSError as error:
        return Unavailable(reason=f"the type of the IOMMU group may not be read: {error.strerror}", help="sudo gpudiag doctor")


def _acs_of(bridge: Path, at: float) -> Reading[tuple[str, ...]]:
    try:
        size = (bridge / "config").stat().st_size
        data = bounded(bridge / "config", _CONFIG_BYTES)
    except OSError as error:
        return Unavailable(reason=f"{bridge / 'config'}: {error.strerror}", help="sudo gpudiag doctor")
    if size <= _EXTENDED:
        return Ok(value=(), at=at)
    if len(data) <= _UNPRIVILEGED_BYTES:
        return Unavailable(
            reason="the kernel shows only 64 bytes of a bridge's configuration without CAP_SYS_ADMIN", help="sudo gpudiag doctor"
        )
    controls = acs_controls(data)
    return Failed(error=f"{bridge / 'config'} is cut short") if controls is None else Ok(value=controls, at=at)


def acs_controls(config: bytes) -> tuple[str, ...] | None:
    """Names of the ACS controls that are on; () without the capability; None if `config` ends before that is clear."""
    offset, visited = _EXTENDED, set()
    while offset and offset not in visited:
        visited.add(offset)
        if offset + 8 > len(config):
            return None
        (header,) = struct.unpack_from("<I", config, offset)
        if header in (0, 0xFFFF_FFFF):
            return ()
        if header & 0xFFFF == _ACS_CAPABILITY:
            (control,) = struct.unpack_from("<H", config, offset + 6)
            return tuple(name for bit, name in enumerate(ACS_BITS) if control >> bit & 1)
        offset = header >> 20 & 0xFFC
    return ()
