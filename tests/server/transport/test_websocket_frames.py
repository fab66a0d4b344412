"""Frames, bytes in and bytes out, against wsproto's encoder and the rules of RFC 6455."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from headgate.server.transport.websocket_frames import (
    CloseCode,
    FrameDecoder,
    FrameError,
    binary_header,
    close_frame,
    pong_frame,
    unmask,
)

bounded = settings(derandomize=True, deadline=None, max_examples=150, database=None)


def frame(first: int, payload: bytes, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    """A client's frame made by hand, for what wsproto would refuse to send."""
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65536:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes([first]) + length + mask + masked


def sent_by_wsproto(events: list[Event]) -> bytes:
    client = Connection(ConnectionType.CLIENT)
    return b"".join(client.send(event) for event in events)


def as_a_client_sees(data: bytes) -> list[Event]:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data)
    return list(client.events())


messages = st.lists(
    st.one_of(
        st.binary(max_size=300).map(lambda data: BytesMessage(data=data)),
        st.binary(max_size=300).map(lambda data: BytesMessage(data=data, message_finished=False)),
        st.binary(max_size=125).map(lambda data: Ping(payload=data)),
        st.binary(max_size=125).map(lambda data: Pong(payload=data)),
    ),
    max_size=8,
)


@bounded
@given(messages, st.randoms(use_true_random=False))
def test_any_split_of_any_frames_gives_the_same_bytes(
    events: list[Event], dice: random.Random
) -> None:
    wire = sent_by_wsproto(events)
    cuts = sorted(dice.randrange(len(wire) + 1) for _ in range(dice.randrange(12)))
    decoder = FrameDecoder()
    out = b"".join(
        decoder.decode(wire[start:end])
        for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)
    )
    assert out == b"".join(bytes(e.data) for e in events if isinstance(e, BytesMessage))
    pings = [bytes(e.payload) for e in events if isinstance(e, Ping)]
    assert decoder.ping == (pings[-1] if pings else None)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 70_001])
def test_byte_by_byte(size: int) -> None:
    message = random.Random(size).randbytes(size)
    wire = sent_by_wsproto([BytesMessage(data=message), BytesMessage(data=b"next")])
    decoder = FrameDecoder()
    assert b"".join(decoder.decode(wire[i : i + 1]) for i in range(len(wire))) == message + b"next"


@bounded
@given(st.binary(max_size=64))
def test_random_bytes_raise_nothing_but_a_frame_error(data: bytes) -> None:
    decoder = FrameDecoder()
    try:
        decoder.decode(data)
    except FrameError as error:
        assert error.code in (CloseCode.PROTOCOL_ERROR, CloseCode.UNSUPPORTED_DATA)


@bounded
@given(st.binary(max_size=20_000), st.binary(min_size=4, max_size=4))
def test_unmasking_is_xor(data: bytes, mask: bytes) -> None:
    assert unmask(data, mask) == bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))


@pytest.mark.parametrize("size", [0, 4095, 4096, 4097, 8192, 100_003])
def test_unmasking_in_pieces(size: int) -> None:
    data, mask = random.Random(size).randbytes(size), b"\xf0\x0f\xaa\x55"
    assert unmask(data, mask) == bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))


def test_payload_is_passed_on_before_its_frame_is_complete() -> None:
    # Nothing is collected, so not even the largest frame there can be costs memory.
    head = b"\x82\xff" + (2**62).to_bytes(8, "big") + b"\0\0\0\0"
    decoder = FrameDecoder()
    assert decoder.decode(head + b"first") == b"first"
    assert decoder.decode(b"second") == b"second"


def test_control_frames_may_stand_between_fragments() -> None:
    wire = frame(0x02, b"one ") + frame(0x89, b"ping") + frame(0x00, b"two ") + frame(0x80, b"end")
    decoder = FrameDecoder()
    assert decoder.decode(wire) == b"one two end"
    assert decoder.ping == b"ping"
    assert decoder.decode(frame(0x82, b"!")) == b"!"


def test_only_the_newest_ping_waits_for_its_answer() -> None:
    decoder = FrameDecoder()
    decoder.decode(b"".join(frame(0x89, bytes([n])) for n in range(100)))
    assert decoder.ping == bytes([99])


def test_pong_needs_no_answer() -> None:
    decoder = FrameDecoder()
    assert decoder.decode(frame(0x8A, b"unasked")) == b""
    assert decoder.ping is None


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", CloseCode.NO_STATUS),
        (b"\x03\xe8", 1000),
        (b"\x03\xe9bye", 1001),
        (b"\x0f\xa0", 4000),
    ],
)
def test_close_frame_ends_the_stream(payload: bytes, code: int) -> None:
    decoder = FrameDecoder()
    assert decoder.decode(frame(0x82, b"last") + frame(0x88, payload) + b"\xff" * 9) == b"last"
    assert decoder.closed == code
    assert decoder.decode(frame(0x82, b"too late")) == b""


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (b"\x82\x05hello", CloseCode.PROTOCOL_ERROR),  # not masked
        (frame(0x81, b"hello"), CloseCode.UNSUPPORTED_DATA),  # text [MQTT-6.0.0-1]
        (frame(0x01, b"hello"), CloseCode.UNSUPPORTED_DATA),  # the first fragment of text
        (frame(0xC2, b"hello"), CloseCode.PROTOCOL_ERROR),  # compressed, which was not agreed on
        (frame(0x83, b""), CloseCode.PROTOCOL_ERROR),  # reserved opcodes
        (frame(0x8B, b""), CloseCode.PROTOCOL_ERROR),
        (frame(0x80, b""), CloseCode.PROTOCOL_ERROR),  # continues nothing
        (frame(0x02, b"") + frame(0x82, b""), CloseCode.PROTOCOL_ERROR),  # not continued
        (frame(0x09, b""), CloseCode.PROTOCOL_ERROR),  # a fragmented ping
        (frame(0x89, bytes(126)), CloseCode.PROTOCOL_ERROR),  # a large ping
        (frame(0x88, b"\x03"), CloseCode.PROTOCOL_ERROR),  # half a close code
        (frame(0x88, b"\x03\xee"), CloseCode.PROTOCOL_ERROR),  # 1006 is never sent
        (frame(0x88, b"\x00\x01"), CloseCode.PROTOCOL_ERROR),
        (b"\x82\xff" + b"\xff" * 8 + bytes(4), CloseCode.PROTOCOL_ERROR),  # a negative length
    ],
)
def test_broken_framing(wire: bytes, code: CloseCode) -> None:
    with pytest.raises(FrameError) as caught:
        FrameDecoder().decode(wire)
    assert caught.value.code == code
    decoder = FrameDecoder()
    with pytest.raises(FrameError):
        for i in range(len(wire)):
            decoder.decode(wire[i : i + 1])


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_client_reads_our_frames(size: int) -> None:
    data = bytes(size)
    events = as_a_client_sees(binary_header(size) + data)
    assert b"".join(bytes(event.data) for event in events) == data  # type: ignore[attr-defined]
    assert not any(isinstance(event, TextMessage) for event in events)


def test_a_client_reads_our_control_frames() -> None:
    assert as_a_client_sees(pong_frame(b"x" * 125)) == [Pong(payload=bytearray(b"x" * 125))]
    (closed,) = as_a_client_sees(close_frame(1003))
    assert isinstance(closed, CloseConnection)
    assert closed.code == 1003
    (closed,) = as_a_client_sees(close_frame(CloseCode.NO_STATUS))
    assert isinstance(closed, CloseConnection)
    assert closed.code == CloseCode.NO_STATUS
