"""Sockets, the event loop, the clock, the store's disk: all that touches the outside."""
