"""Listening sockets: where streams come from."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from headgate.config.addresses import Address
from headgate.config.listeners import Listener as ListenerConfig
from headgate.config.listeners import Tls
from headgate.core.access import Peer
from headgate.errors import ConfigurationError
from headgate.server.transport.plain import PlainStream, set_options
from headgate.server.transport.stream import Stream
from headgate.server.transport.tls import TlsStream
from headgate.server.transport.tls_context import server_context
from headgate.server.transport.websocket import WebSocketStream

NOTSENT_LOWAT = 64 * 1024
"""The default for bytes that the kernel may hold unsent per connection before it says "full"."""

_BACKLOG = 4096

# accept(2): errors of the connection that was about to be accepted, not of the listener
_OF_THE_PEER = {
    errno.ECONNABORTED,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENONET,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
    errno.EPERM,  # a firewall rule
    errno.EPROTO,
}


def open_listener(
    config: ListenerConfig,
    *,
    notsent_lowat: int = NOTSENT_LOWAT,
    origins: Collection[str] = frozenset(),
    mode: int = 0o660,
) -> Listener:
    """Bind, listen, and return the listener; `ConfigurationError` says why that is impossible.

    `origins`: web pages that may connect by WebSocket, all if empty. `mode`: of a Unix socket.
    """
    context = None
    if config.type.is_secure:
        assert config.tls is not None  # a rule of the configuration
        context = server_context(config.tls, _alpn(config))
    try:
        if config.address.path:
            listening = _listen_unix(Path(config.address.path), mode)
        else:
            listening = _listen_tcp(config.address, notsent_lowat)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {config.address}: {error.strerror or error}"
        ) from None
    return Listener(config, listening, context, origins)


class Listener:
    """A listening socket that makes streams of one kind."""

    def __init__(
        self,
        config: ListenerConfig,
        listening: socket.socket,
        context: ssl.SSLContext | None,
        origins: Collection[str],
    ) -> None:
        self.config = config
        self.name = config.label
        self.turned_away = 0
        """Connections closed at once because the process had no descriptor left."""
        self._socket = listening
        self._context = context
        self._origins = origins
        self._reserve: int | None = _open_reserve()
        self._path: tuple[Path, int] | None = None
        if config.address.path:
            path = Path(config.address.path)
            self._path = (path, path.stat().st_ino)
            self.address = config.address
        else:
            host, port = listening.getsockname()[:2]
            self.address = Address(host=host, port=port)
            """Where it really listens: port 0 has become a number."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> Stream | None:
        """The next connection as a stream; None if nobody waits. Call it until it says None.

        Raises `OSError` if the system is out of memory or descriptors, and not even the reserved
        descriptor helps: the caller should then leave the listener alone for a second, because it
        will poll as readable all the time.
        """
        if self._reserve is None:
            self._reserve = _open_reserve()
        while True:
            try:
                descriptor, address = self._socket._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno in _OF_THE_PEER:
                    continue
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._turn_away():
                    raise
                return None
            return self._stream(descriptor, self._peer(address))

    def reload_tls(self, tls: Tls | None = None) -> None:
        """Read certificates again (or new settings) for the connections to come.

        Raises `ConfigurationError` if they cannot be used; then the old ones stay.
        """
        tls = tls or self.config.tls
        if self._context is not None and tls is not None:
            self._context = server_context(tls, _alpn(self.config))
            self.config = replace(self.config, tls=tls)

    def close(self) -> None:
        """Stop listening and remove the Unix socket's file, if it is still ours."""
        self._socket.close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
        if self._path is not None:
            path, inode = self._path
            self._path = None
            with suppress(FileNotFoundError):
                if path.stat().st_ino == inode:
                    path.unlink()

    def _peer(self, address: tuple[str, int] | str) -> Peer:
        if isinstance(address, str):  # a Unix socket
            return Peer(listener=self.name, local=True)
        host, port = address[:2]
        return Peer(host, port, self.name, local=host.startswith("127.") or host == "::1")

    def _stream(self, descriptor: int, peer: Peer) -> Stream:
        stream: Stream
        if self._context is None:
            stream = PlainStream(descriptor, peer)
        else:
            stream = TlsStream(socket.socket(fileno=descriptor), peer, self._context)
        if self.config.type.is_websocket:
            stream = WebSocketStream(stream, self.config.path, self._origins)
        return stream

    def _turn_away(self) -> bool:
        """Close the next connection in the only way there is: by accepting it.

        Without a free descriptor it would stay in the backlog and wake the reactor for ever. One
        descriptor is kept in reserve and given up for that moment.
        """
        if self._reserve is None:
            return False
        os.close(self._reserve)
        try:
            connected, _ = self._socket.accept()
            connected.close()
            self.turned_away += 1
        except BlockingIOError:
            return True  # nobody waits: the kernel looks for a descriptor before it looks there
        except OSError:
            return False
        finally:
            self._reserve = _open_reserve()
        return True


def _open_reserve() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _alpn(config: ListenerConfig) -> str:
    """MQTT's name in the registry of ALPN; a WebSocket begins as HTTP (RFC 7301 §6)."""
    return "http/1.1" if config.type.is_websocket else "mqtt"


def _listen_tcp(address: Address, notsent_lowat: int) -> socket.socket:
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # A name such as localhost often has both: IPv4 is what most devices speak.
    family, kind, protocol, _, where = min(found, key=lambda one: one[0] != socket.AF_INET)
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # [::] and 0.0.0.0 can then be listened on side by side, whatever the system's default.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        set_options(listening, notsent_lowat)  # accepted sockets inherit them
        listening.setblocking(False)
        listening.bind(where)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _listen_unix(path: Path, mode: int) -> socket.socket:
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.bind(str(path))
        path.chmod(mode)  # before anybody can connect
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _remove_stale(path: Path) -> None:
    """Remove the socket that a killed broker left behind; never another file, or a live socket."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigurationError(f"cannot listen on {path}: a file of another kind is there")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except BlockingIOError:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from None
        else:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
