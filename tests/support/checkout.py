"""What belongs to the project: the files that git tracks or would track."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def project_files(root: Path = ROOT) -> tuple[Path, ...]:
    """Files that belong to the project, as paths relative to `root`.

    In a checkout those that are tracked, or new and not ignored, without those just deleted; in an unpacked sdist, where git
    knows nothing, all but hidden and compiled ones.
    """
    if (root / ".git").exists():
        return _known_to_git(root)
    inside = (p.relative_to(root) for p in root.rglob("*") if p.is_file())
    return tuple(sorted(p for p in inside if not any(part.startswith((".", "__pycache__")) for part in p.parts)))


def _known_to_git(root: Path) -> tuple[Path, ...]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    # CI may run as another user than the owner of the checkout, where git refuses to look at it.
    command[1:1] = ["-c", f"safe.directory={root}"]
    listing = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout
    names = sorted({name.decode() for name in listing.split(b"\0") if name})
    return tuple(Path(name) for name in names if (root / name).is_file())
