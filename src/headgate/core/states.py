"""The life of a connection, as the core sees it.

OPENING ──CONNECT──▶ CHECKING ──verdict──▶ OPEN ──▶ CLOSING ──flushed──▶ CLOSED
                        ▲  │ AUTH
                        └──┘
"""

from __future__ import annotations

OPENING = 0
CHECKING = 1
OPEN = 2
CLOSING = 3
CLOSED = 4
