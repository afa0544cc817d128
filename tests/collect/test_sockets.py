"""Socket tables: netlink and /proc tell the same, peers are found, other net namespaces and refusals are survived."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from gpudiag.collect import proc_net, sock_diag
from gpudiag.collect.addresses import endpoint, unix_name
from gpudiag.collect.look import LookOptions, look
from gpudiag.collect.sockets import with_peers
from gpudiag.model.network import Socket
from gpudiag.model.reading import Ok, Unavailable
from gpudiag.model.snapshot import Snapshot
from tests.collect.helpers import program
from tests.support.checkout import ROOT

SECCOMP = Path(__file__).parent / "seccomp.py"
QUIET = LookOptions(stacks="none", locals=False)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def inode(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


def tcp_pair(opened: ExitStack, family: socket.AddressFamily) -> tuple[socket.socket, socket.socket, socket.socket]:
    server = opened.enter_context(socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family))
    client = opened.enter_context(socket.create_connection(server.getsockname()[:2]))
    accepted = opened.enter_context(server.accept()[0])
    return server, client, accepted


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_tcp_from_netlink_and_from_proc_is_the_same(opened: ExitStack, family: socket.AddressFamily) -> None:
    server, client, accepted = tcp_pair(opened, family)
    client.sendall(b"five!")
    mine = {inode(s) for s in (server, client, accepted)}
    netlink = {s.inode: s for s in sock_diag.tcp_sockets() if s.inode in mine}
    proc = {s.inode: s for s in proc_net.tcp_sockets("self") if s.inode in mine}
    assert set(netlink) == set(proc) == mine
    for number in mine:
        one, other = netlink[number], proc[number]
        assert (one.state, one.local, one.remote) == (other.state, other.local, other.remote)
        assert one.receive_queue_bytes == other.receive_queue_bytes
    got = netlink[inode(accepted)]
    assert (got.state, got.receive_queue_bytes, got.bytes_received) == ("ESTABLISHED", 5, 5)
    assert got.last_received_ms is not None
    assert got.last_received_ms < 60_000
    assert got.remote == netlink[inode(client)].local
    listening = netlink[inode(server)]
    assert (listening.state, listening.receive_queue_bytes, listening.bytes_received) == ("LISTEN", 0, None)


def test_a_connection_nobody_accepted_is_counted(opened: ExitStack) -> None:
    server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
    opened.enter_context(socket.create_connection(server.getsockname()))
    for source in (sock_diag.tcp_sockets(), proc_net.tcp_sockets("self")):
        assert next(s for s in source if s.inode == inode(server)).pending_connections == 1


def test_ipv4_inside_ipv6_reads_as_ipv4(opened: ExitStack) -> None:
    server = opened.enter_context(socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True))
    client = opened.enter_context(socket.create_connection(("127.0.0.1", server.getsockname()[1])))
    accepted = opened.enter_context(server.accept()[0])
    found = {s.inode: s for s in sock_diag.tcp_sockets()}
    assert found[inode(accepted)].local == found[inode(client)].remote
    assert with_peers(list(found.values()), {inode(accepted)}) == tuple(
        s for s in found.values() if s.inode in (inode(accepted), inode(client))
    )


def test_unix_peers_and_queues(opened: ExitStack) -> None:
    one, other = (opened.enter_context(s) for s in socket.socketpair())
    one.sendall(b"abc")
    found = {s.inode: s for s in sock_diag.unix_sockets()}
    assert found[inode(one)].peer_inode == inode(other)
    assert found[inode(other)].peer_inode == inode(one)
    assert found[inode(other)].receive_queue_bytes == 3
    assert found[inode(one)].state == "CONNECTED"
    plain = {s.inode: s for s in proc_net.unix_sockets("self")}
    assert plain[inode(one)].state == "CONNECTED"
    assert plain[inode(one)].peer_inode is None


def test_a_unix_client_that_waits_to_be_accepted_has_the_listener_at_its_other_end(opened: ExitStack, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    server, client = (opened.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
    server.bind(path)
    server.listen()
    client.connect(path)
    found = {s.inode: s for s in sock_diag.unix_sockets()}
    assert found[inode(client)].peer_inode == inode(server)
    assert found[inode(client)].remote == path
    assert (found[inode(server)].state, found[inode(server)].pending_connections) == ("LISTEN", 1)


def test_names_and_addresses() -> None:
    assert unix_name(b"\0abstract") == "@abstract"
    assert unix_name(b"/run/x\0") == "/run/x"
    assert endpoint(socket.AF_INET6, bytes(15) + b"\x01", 80) == "[::1]:80"


SERVER_AND_CLIENT = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted = server.accept()[0]
one, other = socket.socketpair()
ready(*(os.fstat(s.fileno()).st_ino for s in (server, client, accepted, one, other)))
wait()
"""


def sockets_of(snapshot: Snapshot) -> dict[int, Socket]:
    assert isinstance(snapshot.sockets, Ok)
    return {s.inode: s for s in snapshot.sockets.value}


def test_only_sockets_of_the_target_and_their_peers_are_kept(opened: ExitStack) -> None:
    opened.enter_context(socket.create_server(("127.0.0.1", 0)))
    with program(SERVER_AND_CLIENT) as target:
        snapshot = look([target.pid], QUIET)
        assert set(sockets_of(snapshot)) == set(target.said)
        assert snapshot.gaps == ()


def test_a_process_at_the_other_end_of_a_socket_is_recorded(opened: ExitStack) -> None:
    server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
    code = "import socket\nclient = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\nready()\nwait()"
    with program(code, str(server.getsockname()[1])) as target:
        accepted = opened.enter_context(server.accept()[0])
        peer = look([target.pid], QUIET).process(os.getpid())
        assert peer is not None
        assert isinstance(peer.fds, Ok)
        assert inode(accepted) in {fd.inode for fd in peer.fds.value}
        assert peer.threads == ()


def look_under(prefix: list[str], pid: int) -> Snapshot:
    """A look from a new process that was started with less rights."""
    code = """if True:
        import sys, msgspec
        from gpudiag.collect.look import LookOptions, look
        snapshot = look([int(sys.argv[1])], LookOptions(stacks="none", locals=False))
        sys.stdout.buffer.write(msgspec.json.encode(snapshot))
    """
    result = subprocess.run([*prefix, "-c", code, str(pid)], cwd=ROOT, capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr.decode()
    return msgspec.json.decode(result.stdout, type=Snapshot)


def test_when_netlink_is_refused_proc_answers_and_says_what_it_lacks() -> None:
    with program(SERVER_AND_CLIENT) as target:
        snapshot = look_under([sys.executable, str(SECCOMP), "netlink", "--"], target.pid)
        assert set(sockets_of(snapshot)) == set(target.said)
        assert {gap.source for gap in snapshot.gaps} == {"tcp-info", "unix-peers"}
        assert all("netlink" in gap.reason and gap.help for gap in snapshot.gaps)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
class TestOtherNetNamespace:
    PREFIX = ("unshare", "-n", "sh", "-c", 'ip link set lo up 2>/dev/null || true; exec "$@"', "sh")

    def code(self) -> str:
        # A net namespace of its own may have its loopback down: Unix sockets alone then.
        return """
import socket
one, other = socket.socketpair()
ready(*(os.fstat(s.fileno()).st_ino for s in (one, other)))
wait()
"""

    def test_it_is_entered_for_a_moment(self) -> None:
        with program(self.code(), prefix=self.PREFIX) as target:
            snapshot = look([target.pid], QUIET)
            one, other = target.said
            found = sockets_of(snapshot)
            assert found[one].peer_inode == other
            assert found[one].net_namespace == os.stat(f"/proc/{target.pid}/ns/net").st_ino
            assert found[one].net_namespace != os.stat("/proc/self/ns/net").st_ino
            assert snapshot.gaps == ()

    def test_without_the_right_to_enter_proc_answers_and_the_help_enters_it(self) -> None:
        with program(self.code(), prefix=self.PREFIX) as target:
            snapshot = look_under([sys.executable, str(SECCOMP), "setns", "--"], target.pid)
            assert set(sockets_of(snapshot)) == set(target.said)
            assert {gap.help for gap in snapshot.gaps} == {f"nsenter -t {target.pid} -n gpudiag attach {target.pid}"}


def test_withheld_sockets_are_unavailable_not_empty() -> None:
    snapshot = look([os.getppid()], LookOptions(stacks="none", locals=False, withhold=frozenset({"sockets"})))
    assert isinstance(snapshot.sockets, Unavailable)
    assert snapshot.sockets.reason == "withheld"
