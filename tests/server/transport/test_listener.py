"""Listening sockets: addresses, files, options, and a process without descriptors."""

from __future__ import annotations

import os
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headgate.config.addresses import Address
from headgate.errors import ConfigurationError
from headgate.server.transport.listener import Listener, open_listener
from headgate.server.transport.stream import Stream

from .conftest import Stage


def accept(listener: Listener) -> Stream:
    """The connection that a blocking connect() has already put into the backlog."""
    stream = listener.accept()
    assert stream is not None
    return stream


def test_port_0_becomes_a_real_one(stage: Stage) -> None:
    listener = stage.listen("tcp").listener
    assert listener.address.port > 0
    assert str(listener.address) == f"127.0.0.1:{listener.address.port}"


def test_a_name_is_resolved(stage: Stage) -> None:
    listener = stage.listen("tcp", address=Address(host="localhost", port=0)).listener
    assert listener.address.host == "127.0.0.1"


def test_ipv6(stage: Stage) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    listener = stage.listen("tcp", address=Address(host="::1", port=0)).listener
    with socket.create_connection(("::1", listener.address.port)):
        stream = accept(listener)
        assert (stream.peer.address, stream.peer.local) == ("::1", True)
        stream.close()


def test_ipv4_and_ipv6_share_a_port(stage: Stage) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    port = stage.listen("tcp", address=Address(host="0.0.0.0", port=0)).listener.address.port
    stage.listen("tcp", address=Address(host="::", port=port))


def test_many_wait_and_all_are_accepted(stage: Stage) -> None:
    listener = stage.listen("tcp").listener
    with ExitStack() as stack:
        where = (listener.address.host, listener.address.port)
        clients = [stack.enter_context(socket.create_connection(where)) for _ in range(200)]
        streams = [accept(listener) for _ in clients]
        assert listener.accept() is None
        assert {s.peer.port for s in streams} == {c.getsockname()[1] for c in clients}
        for stream in streams:
            stream.close()


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])
def test_connections_have_the_options(stage: Stage, kind: str) -> None:
    listener = stage.run(open_listener(stage.config(kind), notsent_lowat=12_345)).listener
    with socket.create_connection((listener.address.host, listener.address.port)):
        stream = accept(listener)
        with socket.socket(fileno=os.dup(stream.fileno())) as same:
            assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 12_345
            assert not os.get_blocking(same.fileno())
            assert not os.get_inheritable(stream.fileno())
        stream.close()


def test_unsent_bytes_stay_few(stage: Stage) -> None:
    """What TCP_NOTSENT_LOWAT is for: the kernel says "full" long before its buffer is."""
    listener = stage.run(open_listener(stage.config("tcp"), notsent_lowat=16_384)).listener
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        client.connect((listener.address.host, listener.address.port))
        stream = accept(listener)
        taken = 0
        while sent := stream.write(bytes(4096)):
            taken += sent
        assert taken < 200_000  # the default would be megabytes
        stream.close()


def test_address_in_use_is_one_sentence(stage: Stage) -> None:
    address = stage.listen("tcp").listener.address
    with pytest.raises(ConfigurationError, match=f"cannot listen on {address}: Address already"):
        open_listener(stage.config("tcp", address=address))


def test_unknown_host_is_one_sentence(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on no\.such\.invalid:0"):
        open_listener(stage.config("tcp", address=Address(host="no.such.invalid", port=0)))


class TestUnix:
    def test_file_has_its_mode_and_goes_at_close(self, stage: Stage, tmp_path: Path) -> None:
        path = tmp_path / "broker.sock"
        listener = open_listener(stage.config("unix"), mode=0o600)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        listener.close()
        assert not path.exists()
        listener.close()

    def test_stale_file_is_replaced(self, stage: Stage, tmp_path: Path) -> None:
        path = tmp_path / "broker.sock"
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(path))  # closed without removing it, as kill -9 does
        listener = stage.listen("unix").listener
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            accept(listener).close()

    def test_live_socket_is_left_alone(self, stage: Stage) -> None:
        loop = stage.listen("unix")
        with pytest.raises(ConfigurationError, match="Address already in use"):
            open_listener(stage.config("unix"))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(loop.listener.address.path)

    def test_other_file_is_left_alone(self, stage: Stage, tmp_path: Path) -> None:
        path = tmp_path / "broker.sock"
        path.write_text("precious")
        with pytest.raises(ConfigurationError, match="a file of another kind is there"):
            open_listener(stage.config("unix"))
        assert path.read_text() == "precious"

    def test_successors_file_stays_at_close(self, stage: Stage, tmp_path: Path) -> None:
        path = tmp_path / "broker.sock"
        listener = open_listener(stage.config("unix"))
        path.rename(tmp_path / "moved.sock")  # keeps its inode number from being given again
        path.write_text("someone else's")
        listener.close()
        assert path.exists()

    def test_missing_folder_is_one_sentence(self, stage: Stage, tmp_path: Path) -> None:
        nowhere = Address(path=str(tmp_path / "no" / "broker.sock"))
        with pytest.raises(ConfigurationError, match="No such file or directory"):
            open_listener(stage.config("unix", address=nowhere))


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Take every descriptor that this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    taken: list[int] = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class TestWithoutDescriptors:
    def test_waiting_connections_are_turned_away_not_left_to_spin(self, stage: Stage) -> None:
        listener = stage.listen("tcp").listener
        where = (listener.address.host, listener.address.port)
        clients = [socket.create_connection(where, timeout=10) for _ in range(3)]
        with no_descriptor_left():
            for number in (1, 2, 3, 3):  # the last time nobody waits
                assert listener.accept() is None
                assert listener.turned_away == number
        for client in clients:
            assert client.recv(1) == b""
            client.close()

    def test_it_recovers(self, stage: Stage) -> None:
        listener = stage.listen("tcp").listener
        where = (listener.address.host, listener.address.port)
        with no_descriptor_left():
            assert listener.accept() is None
        with socket.create_connection(where):
            accept(listener).close()
        assert listener.turned_away == 0

    def test_without_the_reserve_the_reactor_is_told(self, stage: Stage) -> None:
        listener = stage.listen("tcp").listener
        where = (listener.address.host, listener.address.port)
        client = socket.create_connection(where, timeout=10)
        with no_descriptor_left():
            os.close(listener._reserve or -1)  # another thread or process takes it ...
            thief = os.open(os.devnull, os.O_RDONLY)
            listener._reserve = None
            with pytest.raises(OSError, match="Too many open files"):
                listener.accept()
            os.close(thief)
            assert listener.accept() is None  # ... and gives it back
            assert listener.turned_away == 1
        assert client.recv(1) == b""
        client.close()
