"""Files as a target sees them: facts, openers, and no way out of its root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gpudiag.collect import rooted
from gpudiag.collect.files import file_facts
from gpudiag.collect.rooted import Root
from gpudiag.model.file import FileFact
from tests.collect.helpers import program
from tests.support.checkout import ROOT

HOLD = """
held = open(sys.argv[1])
ready()
wait()
"""


def fact(pid: int, path: Path | str) -> FileFact:
    (found,) = file_facts(pid, [str(path)])
    return found


def test_openers_are_found_and_the_search_was_complete(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("123")
    with program(HOLD, str(path)) as target:
        found = fact(os.getpid(), path)
        status = path.stat()
        assert found.exists
        assert (found.inode, found.size_bytes, found.modified_at) == (status.st_ino, 3, status.st_mtime)
        assert found.openers == (target.pid,)
        assert found.fs_type
        assert found.unread_uids == () or os.geteuid() != 0


def test_a_file_that_nobody_has_open(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    assert fact(os.getpid(), path).openers == ()


def test_a_deleted_file_of_the_same_name_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with program(HOLD, str(path)):
        path.unlink()
        missing = fact(os.getpid(), path)
        assert not missing.exists
        assert missing.openers == ()
        assert missing.fs_type
        path.touch()
        assert fact(os.getpid(), path).openers == ()


def test_a_fifo_is_looked_at_but_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    found = fact(os.getpid(), path)
    assert found.exists
    assert found.size_bytes is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the root of a process")
def test_links_do_not_lead_out_of_the_root_of_the_target(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "passwd").write_text("inside!")
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "upwards").symlink_to("../../../../../../etc/passwd")
    (root / "loop").symlink_to("/loop")
    with program("os.chroot(sys.argv[1])\nready()\nwait()", str(root)) as target:
        for name in ("/absolute", "/upwards", "/etc/passwd", "/../etc/passwd"):
            assert fact(target.pid, name).size_bytes == len("inside!")
        assert file_facts(target.pid, ["/loop"]) == ()
        assert not fact(target.pid, str(tmp_path)).exists


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the root of a process")
def test_the_walk_by_hand_resolves_like_the_kernel(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").touch()
    (root / "a" / "link").symlink_to("b")
    (root / "a" / "back").symlink_to("/a/link/../link")
    (root / "dangling").symlink_to("/nowhere")
    (root / "loop").symlink_to("loop")
    paths = ["/a/b/file", "/a/link/file", "/a/back/file", "/dangling", "/loop", "/a/../../a/b", "/", "/a/b/file/x", "/missing"]
    with program("os.chroot(sys.argv[1])\nready()\nwait()", str(root)) as target, Root(target.pid) as seen:
        top = os.open(root, os.O_PATH)
        try:
            for path in paths:
                for follow in (True, False):
                    kernel = identity(lambda p=path, f=follow: seen.open_path(p, follow=f))
                    by_hand = identity(lambda p=path, f=follow: rooted.walk(top, p, follow=f))
                    assert kernel == by_hand, (path, follow)
        finally:
            os.close(top)


def identity(open_path: object) -> tuple[int, int] | str:
    assert callable(open_path)
    try:
        fd = open_path()
    except OSError as error:
        return type(error).__name__
    try:
        status = os.fstat(fd)
        return status.st_dev, status.st_ino
    finally:
        os.close(fd)


def test_existing_paths_count_dangling_links_and_survive_nonsense(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    known = str(tmp_path / "dangling")
    with Root(os.getpid()) as root:
        assert root.existing([known, "/nul\0byte", "/" + "x" * 5000, "/nowhere", "/\udcff"]) == {known}


def test_a_process_that_is_gone_has_no_facts() -> None:
    with program("ready()") as target:
        target.end()
        target.process.wait()
    assert file_facts(target.pid, ["/etc/passwd"]) == ()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_mounts_of_the_target_count_not_ours(tmp_path: Path) -> None:
    code = """
    import subprocess
    subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv[1]], check=True)
    open(sys.argv[1] + "/lock", "w").close()
    held = open(sys.argv[1] + "/lock")
    ready()
    wait()
    """
    with program(code, str(tmp_path), prefix=("unshare", "-m")) as target:
        found = fact(target.pid, tmp_path / "lock")
        assert (found.exists, found.fs_type, found.local) == (True, "tmpfs", True)
        assert found.openers == (target.pid,)
        assert not fact(os.getpid(), tmp_path / "lock").exists


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_in_a_container_a_volume_may_be_open_elsewhere_and_a_private_file_system_not(tmp_path: Path) -> None:
    code = """
    from gpudiag.collect.files import file_facts
    os.mkdir(sys.argv[1] + "/private")
    import subprocess
    subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv[1] + "/private"], check=True)
    paths = [sys.argv[1] + "/private/lock", sys.argv[1] + "/lock"]
    for path in paths:
        open(path, "w").close()
    ready(*((fact.whole_host, fact.openers) for fact in file_facts(os.getpid(), paths)))
    """
    with program(code, str(tmp_path), prefix=("unshare", "-pmf", "--mount-proc"), path=ROOT) as inside:
        assert inside.said == [[True, []], [False, []]]
