"""What cannot work is refused in one clear line and with the documented exit code, never as a bug of gpudiag."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gpudiag.session.record import save
from tests.cli.programs import command, environment, gpudiag
from tests.collect.helpers import program
from tests.session.samples import observation
from tests.support.checkout import ROOT


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


def test_a_file_that_opens_but_is_no_file() -> None:
    done = gpudiag("explain", "/proc/self/mem")
    assert done.returncode == 2
    assert "it is no file but a view of the kernel" in done.stderr


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


FULL_DISK = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=4k tmpfs "$0" && printf old >"$0/report" && exec "$@"')


def on_a_full_disk(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run gpudiag where `folder` has room for nothing but a file 'report' that says 'old'; then print what it says."""
    shell = ("sh", "-c", '"$@"; code=$?; cat "$0/report"; ls -A "$0"; exit $code', str(folder))
    done = subprocess.run(
        [*FULL_DISK, str(folder), *shell, *command(*arguments)], env=environment(), capture_output=True, text=True, timeout=60
    )
    if done.stderr.startswith(("unshare:", "mount:")):
        pytest.skip(done.stderr)
    return done


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
@pytest.mark.parametrize(("fail_on", "code"), [("error", 1), ("never", 2)])
def test_a_report_that_does_not_fit_on_the_disk_is_printed(tmp_path: Path, fail_on: str, code: int) -> None:
    log = tmp_path / "server.log"
    log.write_text('Traceback (most recent call last):\n  File "/srv/app.py", line 1, in main\n    1 / 0\nZeroDivisionError: x\n')
    full = tmp_path / "full"
    full.mkdir()
    done = on_a_full_disk(full, "explain", str(log), "-o", str(full / "report"), "--fail-on", fail_on)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("gpudiag 0.")
    assert done.stdout.endswith("oldreport\n"), "the file that was there is whole, and nothing lies beside it"
    assert "No space left on device; the report is on standard output" in done.stderr


def test_a_report_takes_the_place_of_an_older_one(recording: Path, tmp_path: Path) -> None:
    report, link = tmp_path / "report", tmp_path / "link"
    report.write_text("old")
    report.chmod(0o640)
    link.symlink_to(report)
    done = gpudiag("explain", str(recording), "-o", str(link))
    assert done.stdout == ""
    assert report.read_text().startswith("gpudiag 0.")
    assert (link.is_symlink(), stat.S_IMODE(report.stat().st_mode)) == (True, 0o640)
    assert gpudiag("explain", str(recording), "-o", "/dev/stdout").stdout == report.read_text()


def test_a_dash_is_standard_output(recording: Path, tmp_path: Path) -> None:
    done = gpudiag("explain", str(recording), "-o", "-", cwd=tmp_path)
    assert done.stdout == gpudiag("explain", str(recording)).stdout != ""
    assert not (tmp_path / "-").exists()


def test_one_file_for_the_report_and_the_recording(tmp_path: Path) -> None:
    done = gpudiag("attach", "1", "-o", "x", "--record", str(tmp_path / "x"), cwd=tmp_path)
    assert done.returncode == 2
    assert "the report and the recording cannot both be" in done.stderr


def test_a_filter_that_denies_a_pause_costs_the_pause_and_not_the_report() -> None:
    seccomp = str(ROOT / "tests/collect/seccomp.py")
    with program("ready()\nwait()") as target:
        target.asleep()
        done = subprocess.run(
            [sys.executable, seccomp, "ptrace,pidfd_open", "--", *command("attach", str(target.pid), "--native")[1:]],
            env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert f"native stacks: process {target.pid} was read without stopping it" in done.stdout
