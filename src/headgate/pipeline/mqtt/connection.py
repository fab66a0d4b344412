"""A connection to the broker: paho's client, with answers awaited and refusals in one sentence."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from headgate.errors import ConfigurationError
from headgate.pipeline.mqtt.options import Broker

TAKEN_OVER = 0x8E
REFUSED = 0x80
"""Reason codes from here on are errors."""


class Connection:
    """One client. After `open` it stays: when the connection breaks it is made again, until the
    broker refuses it or `close` is called."""

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        *,
        expiry: int = 0,
        receive_maximum: int | None = None,
        manual: bool = False,
    ) -> None:
        self.broker = broker
        self.client_id = client_id
        self.failure: ConfigurationError | None = None
        """Why it is over, if it is."""
        self.session_present = False
        self.on_connected: Callable[[bool], None] = lambda _: None
        """Called at each connection, with whether the broker remembers the session."""
        self.quota = 65_535
        """Unacknowledged messages that the broker takes from us."""
        self._wanted: Sequence[tuple[str, SubscribeOptions]] = ()
        self._answered = threading.Event()
        self._granted = threading.Event()
        self._properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        if expiry:
            self._properties.SessionExpiryInterval = expiry
        if receive_maximum:
            self._properties.ReceiveMaximum = receive_maximum
        self._clean = expiry == 0
        self.client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=mqtt.MQTTv5,
            manual_ack=manual,
        )
        self.client.reconnect_delay_set(min_delay=1, max_delay=10)
        self.client.max_inflight_messages_set(0)  # whoever publishes keeps to `quota`
        self.client.on_connect = self._connected
        self.client.on_disconnect = self._disconnected
        self.client.on_subscribe = self._subscribed

    def open(
        self,
        topics: Sequence[str] = (),
        options: SubscribeOptions | None = None,
        gone: Sequence[str] = (),
    ) -> None:
        """Connect and subscribe; returns when the broker has granted both.

        `gone` are filters that the session may still have, and that are not wanted any more.
        """
        self._wanted = [(topic, options or SubscribeOptions(qos=1)) for topic in topics]
        user, password = self.broker.credentials()
        if user is not None:
            self.client.username_pw_set(user, password)
        if self.broker.tls:
            self.client.tls_set_context(self._tls())
        try:
            self.client.connect(
                self.broker.host,
                self.broker.port,
                self.broker.keepalive,
                clean_start=self._clean,
                properties=self._properties,
            )
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"no MQTT broker at {self.broker}: {error}") from None
        self.client.loop_start()
        self._await(self._answered, "does not answer a CONNECT of MQTT 5")
        if gone and self.session_present:
            self.client.unsubscribe(list(gone))
        if topics:
            self._await(self._granted, "does not answer a SUBSCRIBE")

    def close(self) -> None:
        """Leave; a session with an expiry stays with the broker."""
        self.client.disconnect()
        self.client.loop_stop()

    def check(self) -> None:
        """Raise what ended the connection for good, if something did."""
        if self.failure is not None:
            raise self.failure

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.broker.ca)
            if self.broker.cert:
                context.load_cert_chain(self.broker.cert, self.broker.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"options ca, cert, key: {error}") from None
        return context

    def _await(self, event: threading.Event, otherwise: str) -> None:
        if not event.wait(self.broker.timeout):
            self.close()
            raise ConfigurationError(
                f"the broker at {self.broker} {otherwise} within {self.broker.timeout:g} s"
            )
        if self.failure is not None:
            self.close()
            raise self.failure

    def _connected(
        self,
        client: mqtt.Client,
        _data: Any,
        flags: mqtt.ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if reason.value >= REFUSED:
            self._fail(f"the broker at {self.broker} refuses the connection: {reason}")
            return
        self.session_present = flags.session_present
        self.quota = getattr(properties, "ReceiveMaximum", 65_535)
        self.on_connected(flags.session_present)
        # Also when the session is there: the filters of a query may have changed.
        if self._wanted:
            client.subscribe(list(self._wanted))
        self._answered.set()

    def _subscribed(
        self,
        _client: mqtt.Client,
        _data: Any,
        _packet: int,
        reasons: list[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        for (topic, _), reason in zip(self._wanted, reasons, strict=False):
            if reason.value >= REFUSED:
                self._fail(f"the broker at {self.broker} refuses {topic!r}: {reason}")
                return
        self._granted.set()

    def _disconnected(
        self,
        _client: mqtt.Client,
        _data: Any,
        _flags: mqtt.DisconnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if reason.value == TAKEN_OVER:
            # To come back would take it over again, and so on for ever.
            self._fail(
                f"another client took over the session of {self.client_id!r} at {self.broker}: "
                "a client id serves one query at a time"
            )

    def _fail(self, sentence: str) -> None:
        self.failure = ConfigurationError(sentence)
        self.client.disconnect()  # or else it would try again
        self._answered.set()
        self._granted.set()
