"""Where to listen: a host and port, or the path of a Unix socket."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from msgspec import Meta

from headgate.contract.schema import Record

_HOST_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", re.ASCII)


class Address(Record, frozen=True):
    """A network address (`host` and `port`), or the `path` of a Unix socket."""

    host: str = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """0 lets the system choose a free one."""
    path: str = ""

    @property
    def is_local(self) -> bool:
        """Reachable from this machine only."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        if self.path:
            return self.path if "/" in self.path else f"./{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """Read `host:port`, `[::1]:port` or a path (which has a `/`); ValueError says what is wrong."""
    if "/" in text:
        return Address(path=text)
    match = _HOST_PORT.fullmatch(text)
    if match is None:
        raise ValueError(
            'expected "host:port" such as "127.0.0.1:1883" or "[::1]:1883" '
            '("0.0.0.0:1883" for every interface), or a path with a "/" for a Unix socket'
        )
    host, port = match[1] or match[2], int(match[3])
    if port > 65535:
        raise ValueError(f"port {port} does not exist: at most 65535")
    if match[1] or re.fullmatch(r"[0-9.]+", host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(f"{host} is not an IP address") from None
    return Address(host=host, port=port)
