"""What the broker learned of a client that comes and goes survives SIGKILL, in the real store."""

from __future__ import annotations

from pathlib import Path

from headgate.contract import FlowSnapshot, Snapshot

from .peer import Publisher, Subscriber
from .process import MortalBroker

CONFIG = """
auth: {local_roles: [admin]}
snapshot_interval: 50ms
applications:
  commuters: {clients: ["phone"], threshold_s: 0.000001}
"""


def seen(broker: MortalBroker) -> FlowSnapshot:
    """The phone's flow, in a snapshot. Something waits for it, so that it is shown."""
    watcher = Subscriber("watcher", expiry=0)
    watcher.connect(broker.port, clean=True)
    watcher.until_connected()
    watcher.subscribe("$SYS/headgate/snapshot", qos=0)
    found: list[FlowSnapshot] = []

    def look() -> bool:
        for message in watcher.messages:
            flows = Snapshot.from_json(message.payload).flows
            found.extend(flow for flow in flows if flow.client == "phone")
        watcher.messages.clear()
        return bool(found)

    watcher.until(look, "a snapshot of the phone")
    watcher.disconnect()
    return found[-1]


def test_what_was_learned_of_a_client_survives(tmp_path: Path) -> None:
    with MortalBroker(tmp_path, CONFIG) as broker:
        phone, device = Subscriber("phone"), Publisher("device")
        device.connect(broker.port)
        device.until_connected()
        for cycle in range(10):
            phone.connect(broker.port)
            phone.until_connected()
            if cycle == 0:
                phone.subscribe("news", qos=1)
            phone.until_messages(4 * min(cycle, 3))
            phone.until(lambda: not phone.unfinished and not phone.wants_write, "its PUBACKs")
            phone.disconnect()
            if cycle < 3:  # too little is known yet: all of it waits
                for _ in range(4):
                    device.publish("news", b"normal", 1)
                device.until(lambda: device.idle, "PUBACK")
        device.publish("$critical/news", b"waits", 1)
        device.until(lambda: device.idle, "PUBACK")
        before = seen(broker)
        assert before.periods > 5
        assert before.join == 0.0  # nobody keeps this threshold
        broker.kill()
        broker.start()
        after = seen(broker)
        assert (after.on_s, after.periods, after.join) == (
            before.on_s,
            before.periods,
            before.join,
        )
        assert after.off_s > 0.0
        broker.stop()
