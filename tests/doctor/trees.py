"""Made-up trees that stand for '/'."""

from __future__ import annotations

import struct
from pathlib import Path


def put(root: Path, path: str, text: str | bytes) -> Path:
    """A file below `root` with everything above it."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def config_space(control: int | None, *, size: int = 4096, first: int = 0x0001) -> bytes:
    """PCI configuration: one capability of another kind at 0x100, then ACS at 0x140 with this control word, None without."""
    data = bytearray(4096)
    follow = 0 if control is None else 0x140
    struct.pack_into("<I", data, 0x100, follow << 20 | 1 << 16 | first)
    if control is not None:
        struct.pack_into("<IHH", data, 0x140, 0x0001_000D, 0x7F, control)
    return bytes(data[:size])


def device(root: Path, chain: list[str], *, config: dict[str, bytes] | None = None, domain: str | None = None) -> None:
    """An NVIDIA GPU at the end of a chain of bridges, as sysfs nests them."""
    place = root / "sys/devices/pci0000:00"
    for address in chain:
        place /= address
        place.mkdir(parents=True, exist_ok=True)
        if config and address in config:
            (place / "config").write_bytes(config[address])
    attributes = {
        "vendor": "0x10de\n",
        "class": "0x030200\n",
        "current_link_width": "16\n",
        "max_link_width": "16\n",
        "numa_node": "0\n",
    }
    for name, text in attributes.items():
        (place / name).write_text(text)
    if domain is not None:
        group = root / f"sys/kernel/iommu_groups/{chain[-1]}"
        group.mkdir(parents=True)
        (group / "type").write_text(domain + "\n")
        (place / "iommu_group").symlink_to(group)
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / chain[-1]).symlink_to(place)
