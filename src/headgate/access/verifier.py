"""Slow work beside the broker's thread: bounded, and answered in the broker's thread."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headgate.access.waiting import Applicant, Line

THREADS = 2
PER_ADDRESS = 200
"""At 50 ms each and two threads the last one waits five seconds, if there are no others."""
IN_ALL = 2000
"""A waiting login holds no more than its connection does: this bounds how long one may wait."""

Post = Callable[[Callable[[], None]], None]
"""Run a function in the broker's thread, soon; safe to call from any thread."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """Something slow to find out, and who is told."""

    run: Callable[[], bool]
    """Called in another thread. If it raises, nothing is proven: that counts as False."""
    done: Callable[[bool], None]
    turned_away: Callable[[], None]
    """There is no room for it."""


class Verifier:
    """A few threads that check passwords. All methods belong to the broker's thread."""

    def __init__(
        self,
        post: Post,
        threads: int = THREADS,
        per_address: int = PER_ADDRESS,
        in_all: int = IN_ALL,
    ) -> None:
        self._post = post
        self._line: Line[Check] = Line(per_address, in_all)
        self._idle = threads
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="headgate-verify")

    def submit(self, applicant: Applicant, check: Check) -> None:
        """Check beside when it is the applicant's turn, then call back here."""
        if self._idle:
            self._begin(check)
            return
        leaves = self._line.add(applicant, check)
        if leaves is not None:
            leaves.turned_away()

    def close(self) -> None:
        """Drop what waits and let the threads end."""
        self._line = Line(0, 0)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, check: Check) -> None:
        def run() -> None:
            try:
                verdict = check.run()
            except Exception:
                log.exception("a password could not be checked")
                verdict = False
            self._post(lambda: self._finish(check, verdict))

        self._idle -= 1
        self._threads.submit(run)

    def _finish(self, check: Check, verdict: bool) -> None:
        self._idle += 1
        following = self._line.take()
        if following is not None:
            self._begin(following)
        check.done(verdict)


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
