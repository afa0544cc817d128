"""What cannot work is refused in one clear line and with the documented exit code, never as a bug of gpudiag."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from gpudiag.session.record import save
from tests.cli.programs import command, environment, gpudiag
from tests.session.samples import observation


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "hang.gpudiag"
    save(observation(), path, command="attach")
    return path


def test_a_disk_without_room_for_the_report(recording: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("explain", str(recording)), env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr.startswith("gpudiag: error: cannot write the report: No space left on device\ntry: -o FILE")


def test_an_interval_that_is_no_number() -> None:
    done = gpudiag("attach", "1", "--interval", "nan")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--interval is no number" in done.stderr


def test_a_file_that_opens_but_cannot_be_read() -> None:
    done = gpudiag("explain", "/proc/self/mem")
    assert done.returncode in (2, 5)
    assert "Input/output error" in done.stdout + done.stderr
    assert "a bug in gpudiag" not in done.stderr


@pytest.mark.parametrize("at", [-1e300, 1e300, -1.0])
def test_a_recording_from_a_time_that_does_not_exist(recording: Path, at: float) -> None:
    with zipfile.ZipFile(recording) as bundle:
        members = {name: bundle.read(name) for name in bundle.namelist()}
    kept = json.loads(members["observation.json"])
    kept["snapshots"][-1]["at"] = at
    members["observation.json"] = json.dumps(kept).encode()
    manifest = json.loads(members["manifest.json"])
    manifest["contents"]["observation.json"] = {
        "sha256": hashlib.sha256(members["observation.json"]).hexdigest(),
        "size_bytes": len(members["observation.json"]),
    }
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(recording, "w") as bundle:
        for name, data in members.items():
            bundle.writestr(name, data)
    done = gpudiag("explain", str(recording))
    assert (done.returncode, done.stdout) == (2, "")
    assert "was recorded at a time that does not exist" in done.stderr
