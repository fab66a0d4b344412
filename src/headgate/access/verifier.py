"""Slow work beside the broker's thread: bounded, and answered in the broker's thread."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

THREADS = 2
WAITING = 200
"""At 50 ms each and two threads the last one waits five seconds, half of the connect timeout."""

Post = Callable[[Callable[[], None]], None]
"""Run a function in the broker's thread, soon; safe to call from any thread."""

log = logging.getLogger(__name__)


class Verifier:
    """A few threads that check passwords. All methods belong to the broker's thread."""

    def __init__(self, post: Post, threads: int = THREADS, waiting: int = WAITING) -> None:
        self._post = post
        self._room = threads + waiting
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="headgate-verify")

    def submit(self, check: Callable[[], bool], done: Callable[[bool], None]) -> bool:
        """Check beside, then call `done` here; False, and nothing happens, if there is no room.

        A check that fails with an exception proves nothing: it counts as False.
        """
        if self._room == 0:
            return False
        self._room -= 1

        def finish(verdict: bool) -> None:
            self._room += 1
            done(verdict)

        def run() -> None:
            try:
                verdict = check()
            except Exception:
                log.exception("a password could not be checked")
                verdict = False
            self._post(lambda: finish(verdict))

        self._threads.submit(run)
        return True

    def close(self) -> None:
        """Drop what waits and let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class RecentLogins:
    """Logins that were proven a moment ago, so that a storm of reconnections costs no hashing.

    It keeps keyed digests under a key of this process, never a password, and of successes only.
    """

    def __init__(self, lifetime_s: float = 300.0, capacity: int = 10_000) -> None:
        self._lifetime = lifetime_s
        self._capacity = capacity
        self._key = secrets.token_bytes(32)
        self._expiry: OrderedDict[bytes, float] = OrderedDict()

    def add(self, hashed: str, password: bytes, now: float) -> None:
        digest = self._digest(hashed, password)
        self._expiry[digest] = now + self._lifetime
        self._expiry.move_to_end(digest)
        if len(self._expiry) > self._capacity:
            self._expiry.popitem(last=False)

    def holds(self, hashed: str, password: bytes, now: float) -> bool:
        """Was this password proven against this very hash, not long ago?"""
        digest = self._digest(hashed, password)
        expiry = self._expiry.get(digest)
        if expiry is None:
            return False
        if now >= expiry:
            del self._expiry[digest]
            return False
        return True

    def _digest(self, hashed: str, password: bytes) -> bytes:
        # The hash has its own salt, so it stands for user and password; it has no NUL in it.
        return hmac.digest(self._key, hashed.encode() + b"\0" + password, hashlib.sha256)
