"""A real virtual environment with packages written into it as an installer would: files, RECORD, metadata."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Site:
    """An interpreter and its package directory."""

    python: str
    packages: Path

    def install(
        self, name: str, version: str, files: dict[str, str], *, requires: tuple[str, ...] = (), editable: str = ""
    ) -> None:
        """Write files and their distribution. An editable one gets a .pth to `editable` instead of a RECORD of its sources."""
        rows = []
        for path, text in files.items():
            full = self.packages / path
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text(text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(text.encode())}")
        info = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
        (info / "METADATA").write_text("\n".join(metadata) + "\n")
        (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")
        if editable:
            (info / "direct_url.json").write_text(json.dumps({"url": f"file://{editable}", "dir_info": {"editable": True}}))
            (self.packages / f"__editable__.{name}-{version}.pth").write_text(editable + "\n")


def make(directory: Path, base: str = sys.executable) -> Site:
    """A new environment without pip, in half a second."""
    subprocess.run([base, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=60)
    (packages,) = directory.glob("lib/python3*/site-packages")
    return Site(python=str(directory / "bin" / "python"), packages=packages)
