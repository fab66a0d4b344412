"""The Prometheus endpoint: the same figures as `$SYS`, in the text format that scrapers read.

It is answered in a thread of its own, but the figures are gathered in the broker's thread, between
two turns: a scrape sees a consistent state and costs the hot path nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headgate import __version__
from headgate.config import Address
from headgate.core.flows import Drop
from headgate.core.observing import Captured
from headgate.core.statistics import Statistics
from headgate.errors import ConfigurationError

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds that the broker's thread may take to answer a scrape."""


class QuietServer(ThreadingHTTPServer):
    """A scraper that hangs up is no news."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a scrape by %s ended early", client_address)


class MetricsServer:
    def __init__(
        self,
        address: Address,
        statistics: Statistics,
        clock: Callable[[], float],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        def gather() -> bytes | None:
            done = threading.Event()
            page: list[bytes] = []

            def work() -> None:
                page.append("".join(lines(statistics, clock())).encode())
                done.set()

            post(work)
            return page[0] if done.wait(PATIENCE) else None

        class Handler(BaseHTTPRequestHandler):
            timeout = PATIENCE
            server_version = "Headgate"
            sys_version = ""

            def do_GET(self) -> None:
                page = gather() if self.path == "/metrics" else None
                if self.path not in ("/metrics", "/health"):
                    self.send_error(404, "try /metrics or /health")
                    return
                if self.path == "/metrics" and page is None:
                    self.send_error(503, "the broker did not answer in time")
                    return
                body = page or b"ok\n"
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Scrapes are not news."""

        try:
            self._server = QuietServer((address.host, address.port), Handler)
        except OSError as error:
            raise ConfigurationError(
                f"cannot serve metrics on {address}: {error.strerror or error}"
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="headgate-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def lines(statistics: Statistics, now: float) -> Iterator[str]:
    """The page, line by line."""
    broker = statistics.broker
    counters = broker.counters
    connected = sum(1 for session in broker.sessions.values() if session.channel is not None)
    yield from metric("info", "gauge", "Version of the broker", {f'version="{__version__}"': 1})
    yield from metric("uptime_seconds", "gauge", "Time since start", now - statistics.started)
    yield from metric("connections", "gauge", "Open connections", len(broker.channels))
    yield from metric(
        "sessions",
        "gauge",
        "Sessions, by whether their client is connected",
        {
            'state="connected"': connected,
            'state="disconnected"': len(broker.sessions) - connected,
        },
    )
    yield from metric(
        "connections_total",
        "counter",
        "Connections, by how they went",
        {
            'result="opened"': counters.connections_opened,
            'result="refused"': counters.connections_refused,
            'result="failed"': counters.connections_failed,
        },
    )
    yield from metric(
        "messages_received_total", "counter", "PUBLISH from clients", counters.messages_received
    )
    yield from metric(
        "messages_sent_total", "counter", "PUBLISH to subscribers", statistics.delivered()
    )
    yield from metric("messages_refused_total", "counter", "Not allowed", counters.messages_refused)
    drops = statistics.drops()
    yield from metric(
        "messages_dropped_total",
        "counter",
        "Messages that did not reach a subscriber, by reason",
        {f'reason="{reason.name.lower()}"': drops[reason] for reason in Drop},
    )
    yield from metric("received_bytes_total", "counter", "Bytes in", counters.bytes_received)
    yield from metric("sent_bytes_total", "counter", "Bytes out", counters.bytes_sent)
    yield from metric("retained_messages", "gauge", "Retained", broker.retained.count)
    yield from metric("subscriptions", "gauge", "Subscriptions", broker.router.subscriptions)
    yield from metric("queued_messages", "gauge", "Waiting in queues", broker.pool.messages)
    yield from metric("queued_bytes", "gauge", "Bytes waiting in queues", broker.pool.size)
    inflight = broker.pool.unacknowledged
    yield from metric("inflight_bytes", "gauge", "Bytes sent and not acknowledged", inflight)
    yield from metric("retained_bytes", "gauge", "Bytes of retained messages", broker.pool.retained)
    written, lost = broker.observer.tally()
    yield from metric("records_total", "counter", "Records handed to the encoder", written)
    yield from metric("records_lost_total", "counter", "Records that found no room", lost)
    yield from captures(broker.observer.captures())


def captures(found: Captured) -> Iterator[str]:
    yield from metric("captures_total", "counter", "Messages captured", found.taken)
    yield from metric("captures_lost_total", "counter", "Not captured for want of room", found.lost)
    yield from metric(
        "captures_waiting_bytes", "gauge", "Captured and not yet in a segment", found.waiting
    )
    yield from metric(
        "captures_stalled", "gauge", "1 while publishers wait for room", int(found.stalled)
    )


def metric(name: str, kind: str, text: str, value: float | dict[str, int]) -> Iterator[str]:
    """One metric with its help, its type and its samples."""
    yield f"# HELP headgate_{name} {text}\n# TYPE headgate_{name} {kind}\n"
    samples = value if isinstance(value, dict) else {"": value}
    for labels, sample in samples.items():
        yield f"headgate_{name}{{{labels}}} {sample}\n" if labels else f"headgate_{name} {sample}\n"
