"""What belongs to the project: the files that git tracks or would track."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def project_files(root: Path = ROOT) -> tuple[Path, ...]:
    """Files that are tracked, or new and not ignored, as paths relative to `root`; without those just deleted."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    # CI may run as another user than the owner of the checkout, where git refuses to look at it.
    command[1:1] = ["-c", f"safe.directory={root}"]
    listing = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout
    names = sorted({name.decode() for name in listing.split(b"\0") if name})
    return tuple(Path(name) for name in names if (root / name).is_file())
