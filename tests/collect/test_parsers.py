"""Small grammars: environment, maps, mountinfo, lock table, system calls."""

from __future__ import annotations

import pytest

from gpudiag.collect.environ import parse_environ
from gpudiag.collect.guarded_state import parse_syscall
from gpudiag.collect.lock_table import parse_locks
from gpudiag.collect.maps import parse_maps
from gpudiag.collect.mounts import device_name, parse_mountinfo
from gpudiag.collect.syscall_names import syscall_name
from gpudiag.model.file import FileLock


def test_only_allowed_variables_leave_the_target() -> None:
    raw = b"RANK=3\0HOME=/root\0NCCL_DEBUG=INFO\0VLLM_API_KEY=sk-1\0HF_TOKEN=hf\0SGLANG_SECRET_X=1\0NCCL_PASSWORD=x\0WORLD_SIZE=8"
    assert parse_environ(raw) == {"RANK": "3", "NCCL_DEBUG": "INFO", "WORLD_SIZE": "8"}


def test_the_first_of_a_name_wins_and_long_values_are_cut() -> None:
    assert parse_environ(b"RANK=1\0RANK=2\0") == {"RANK": "1"}
    assert len(parse_environ(b"LD_PRELOAD=" + b"x" * 9999)["LD_PRELOAD"]) == 1024


def test_credentials_inside_an_address_are_masked() -> None:
    assert parse_environ(b"VLLM_URL=http://me:pw@host/x") == {"VLLM_URL": "http://***@host/x"}


def test_padding_that_setproctitle_leaves_is_no_variable() -> None:
    assert parse_environ(b"\0\0\0nonsense\0=x\0RANK=0\0\xff\xfe") == {"RANK": "0"}


MAPS = b"""\
00400000-00401000 r--p 00000000 fe:00 12  /usr/bin/python3.12
00401000-00500000 r-xp 00001000 fe:00 12  /usr/bin/python3.12
7f00-7f01 rw-s 00000000 00:19 77         /dev/shm/psm_1a2b
7f01-7f02 rw-s 00000000 00:01 78         /memfd:cuda (deleted)
7f02-7f03 r-xp 00000000 fe:00 90         /x y/lib/libnccl.so.2 (deleted)
7f03-7f04 r-xp 00000000 fe:00 91         /usr/lib/libm.so.6
7f04-7f05 r-xp 00000000 fe:00 92         /s/pyzmq.libs/libzmq-9a.so.5
7f05-7f06 r-xp 00000000 fe:00 93         /s/torch/lib/libtorch_cuda.so
7f06-7f07 rw-p 00000000 00:00 0          [heap]
7f07-7f08 r-xp 00000000 fe:00 94         /s/cut/off/libtorch"""


def test_maps_name_shared_memory_libraries_and_python() -> None:
    mapped = parse_maps(MAPS)
    assert mapped.shared_memory == ("/dev/shm/psm_1a2b", "/memfd:cuda (deleted)")
    assert mapped.libraries == ("/s/pyzmq.libs/libzmq-9a.so.5", "/s/torch/lib/libtorch_cuda.so", "/x y/lib/libnccl.so.2")
    assert mapped.python_version == "3.12"


@pytest.mark.parametrize(
    ("path", "version"),
    [
        (b"/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", "3.11"),
        (b"/opt/python3.13/bin/server", None),
        (b"/s/_socket.cpython-314t-x86_64-linux-gnu.so", "3.14"),
        (b"/usr/bin/python3.9", "3.9"),
        (b"/usr/bin/sleep", None),
    ],
)
def test_python_is_known_by_its_files(path: bytes, version: str | None) -> None:
    assert parse_maps(b"0-1 r-xp 00000000 fe:00 1 " + path + b"\n").python_version == version


MOUNTINFO = b"""\
22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=invisible
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 0:50 / /mnt/a\\040b rw - nfs4 server:/x rw,vers=4.2
41 27 0:51 / /mnt/s rw master:2 - fuse.sshfs me@host rw
broken line
"""


def test_mounts_tell_device_file_system_and_whether_others_share_it() -> None:
    mounts = parse_mountinfo(MOUNTINFO)
    assert (mounts[27].device, mounts[27].fs_type, mounts[27].local) == ("fe:00", "ext4", True)
    assert not mounts[40].local
    assert not mounts[41].local
    assert "hidepid=invisible" in mounts[22].options
    assert device_name(0, 300) == "00:12c"


LOCKS = b"""\
1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF
1: -> FLOCK  ADVISORY  WRITE 360 00:13:11691 0 EOF
2: POSIX  ADVISORY  READ  361 fe:00:7 0 99
3: OFDLCK ADVISORY  WRITE -1 fe:00:8 0 EOF
4: DELEG  ACTIVE    READ 1 fe:00:9 0 EOF
5: nonsense
"""


def test_lock_lines() -> None:
    assert parse_locks(LOCKS) == (
        FileLock(id=1, kind="flock", mode="WRITE", pid=359, device="00:13", inode=11691, blocked=False),
        FileLock(id=1, kind="flock", mode="WRITE", pid=360, device="00:13", inode=11691, blocked=True),
        FileLock(id=2, kind="posix", mode="READ", pid=361, device="fe:00", inode=7, blocked=False),
        FileLock(id=3, kind="ofd", mode="WRITE", pid=-1, device="fe:00", inode=8, blocked=False),
        FileLock(id=4, kind="other", mode="READ", pid=1, device="fe:00", inode=9, blocked=False),
    )


def test_system_calls() -> None:
    call = parse_syscall(b"202 0x55d0 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f17\n")
    assert call is not None
    assert (call.number, call.args) == (202, (0x55D0, 0x189, 0, 0, 0, 0xFFFFFFFF))
    assert parse_syscall(b"running\n") is None
    assert parse_syscall(b"-1 0x0 0x0\n") is None


@pytest.mark.parametrize(
    ("number", "machine", "name"),
    [(202, "x86_64", "futex"), (98, "aarch64", "futex"), (22, "aarch64", "epoll_pwait"), (9999, "x86_64", "syscall_9999")],
)
def test_system_call_names_depend_on_the_machine(number: int, machine: str, name: str) -> None:
    assert syscall_name(number, machine) == name
