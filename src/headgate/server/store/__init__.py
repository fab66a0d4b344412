"""The journal on disk: what was acknowledged survives the end of the process."""

from __future__ import annotations

from headgate.server.store.log import LogStore
from headgate.server.store.store import Durability, Medium, Store

__all__ = ["Durability", "LogStore", "Medium", "Store"]
