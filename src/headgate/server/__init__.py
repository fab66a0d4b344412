"""Sockets, the event loop, the clock, the store's disk: all that touches the outside."""

from headgate.server.server import Server

__all__ = ["Server"]
