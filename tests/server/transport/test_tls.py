"""What is particular to TLS: certificates, versions, resumption, and peers that speak no TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from headgate.config.listeners import Tls, TlsVersion
from headgate.errors import ConfigurationError
from headgate.server.transport.listener import open_listener
from headgate.server.transport.stream import StreamError
from headgate.server.transport.tls_context import server_context

from .certificates import make_test_certificates
from .clients import TlsClient, client_context, connect_socket, receive_all
from .conftest import Stage
from .loop import Loop


def shake_hands(
    stage: Stage, loop: Loop, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> TlsClient:
    """Connect, and have one message echoed, so that both sides are past their handshake."""

    def dial() -> TlsClient:
        client = TlsClient(connect_socket(loop.listener.address), context, session)
        client.send(b"hello")
        assert client.receive() == b"hello"
        return client

    client = stage.finish(loop, dial)
    stage.clients.append(client)
    return client


def refused(stage: Stage, loop: Loop, context: ssl.SSLContext) -> tuple[Exception | None, str]:
    """What the peer and the broker say about a handshake that must not succeed."""

    def dial() -> Exception | None:
        with connect_socket(loop.listener.address) as connected:
            try:
                TlsClient(connected, context).receive()  # TLS 1.3: the alert comes after
            except OSError as error:
                return error
            return None

    theirs = stage.finish(loop, dial)
    served = loop.only()
    loop.until(lambda: served.error, "the refusal")
    assert isinstance(served.error, StreamError)
    return theirs, str(served.error)


def test_newest_version_and_mqtt_by_alpn(stage: Stage) -> None:
    loop = stage.listen("tls", echo=True)
    context = client_context(stage.certificates)
    context.set_alpn_protocols(["mqtt"])
    client = shake_hands(stage, loop, context)
    assert client.tls.version() == "TLSv1.3"
    assert client.tls.selected_alpn_protocol() == "mqtt"


def test_websocket_is_http_by_alpn(stage: Stage) -> None:
    loop = stage.listen("wss")
    context = client_context(stage.certificates)
    context.set_alpn_protocols(["h2", "http/1.1"])
    client = stage.finish(loop, lambda: TlsClient(connect_socket(loop.listener.address), context))
    stage.clients.append(client)
    assert client.tls.selected_alpn_protocol() == "http/1.1"


def test_client_without_a_known_alpn_is_served(stage: Stage) -> None:
    loop = stage.listen("tls", echo=True)
    context = client_context(stage.certificates)
    context.set_alpn_protocols(["x-other"])
    assert shake_hands(stage, loop, context).tls.selected_alpn_protocol() is None


def test_tls_1_2_has_forward_secrecy_and_authenticated_encryption(stage: Stage) -> None:
    loop = stage.listen("tls", echo=True)
    context = client_context(stage.certificates)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    cipher = shake_hands(stage, loop, context).tls.cipher()
    assert cipher is not None
    assert cipher[0].startswith("ECDHE-")
    assert "GCM" in cipher[0] or "CHACHA20" in cipher[0]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_tls_1_1_is_refused(stage: Stage) -> None:
    loop = stage.listen("tls")
    context = client_context(stage.certificates)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1_1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    theirs, ours = refused(stage, loop, context)
    assert isinstance(theirs, ssl.SSLError)
    assert "older than this listener accepts" in ours


def test_minimum_version_is_obeyed(stage: Stage) -> None:
    loop = stage.listen("tls", tls=stage.tls(minimum_version=TlsVersion.V1_3))
    context = client_context(stage.certificates)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    theirs, _ = refused(stage, loop, context)
    assert isinstance(theirs, ssl.SSLError)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("mutual", [False, True])
def test_session_is_resumed_and_keeps_its_name(
    stage: Stage, version: ssl.TLSVersion, mutual: bool
) -> None:
    settings = {"client_ca": stage.certificates.ca} if mutual else {}
    loop = stage.listen("tls", echo=True, tls=stage.tls(**settings))
    context = client_context(stage.certificates, with_certificate=mutual)
    context.maximum_version = version
    first = shake_hands(stage, loop, context)
    second = shake_hands(stage, loop, context, session=first.tls.session)
    assert second.tls.session_reused
    name = stage.certificates.client_name if mutual else None
    assert [served.stream.peer.certificate_name for served in loop.served] == [name, name]


def test_name_of_the_client_certificate_is_known(stage: Stage) -> None:
    settings = stage.tls(client_ca=stage.certificates.ca, require_client_certificate=True)
    loop = stage.listen("tls", echo=True, tls=settings)
    shake_hands(stage, loop, client_context(stage.certificates, with_certificate=True))
    peer = loop.only().stream.peer
    assert peer.certificate_name == stage.certificates.client_name
    assert peer.listener == loop.listener.name


def test_client_certificate_may_be_optional(stage: Stage) -> None:
    loop = stage.listen("tls", echo=True, tls=stage.tls(client_ca=stage.certificates.ca))
    shake_hands(stage, loop, client_context(stage.certificates))
    assert loop.only().stream.peer.certificate_name is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_missing_client_certificate_is_refused(stage: Stage, version: ssl.TLSVersion) -> None:
    settings = stage.tls(client_ca=stage.certificates.ca, require_client_certificate=True)
    loop = stage.listen("tls", tls=settings)
    context = client_context(stage.certificates)
    context.maximum_version = version
    theirs, ours = refused(stage, loop, context)
    assert isinstance(theirs, ssl.SSLError)  # the alert reached it
    assert "it has no certificate, this listener requires one" in ours


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificate_of_another_authority_is_refused(
    stage: Stage, tmp_path: Path, version: ssl.TLSVersion, required: bool
) -> None:
    other = make_test_certificates(tmp_path / "other", client_name="impostor")
    settings = stage.tls(client_ca=stage.certificates.ca, require_client_certificate=required)
    loop = stage.listen("tls", tls=settings)
    context = client_context(stage.certificates)
    context.load_cert_chain(other.client, other.client_key)
    context.maximum_version = version
    theirs, ours = refused(stage, loop, context)
    assert isinstance(theirs, ssl.SSLError)
    assert "its certificate is not accepted" in ours
    assert loop.only().stream.peer.certificate_name is None


def test_client_that_distrusts_us_is_named_as_such(stage: Stage, tmp_path: Path) -> None:
    other = make_test_certificates(tmp_path / "other")
    loop = stage.listen("tls")
    theirs, ours = refused(stage, loop, client_context(other))
    assert isinstance(theirs, ssl.SSLCertVerificationError)
    assert "it does not trust the authority of our certificate" in ours


@pytest.mark.parametrize(
    ("garbage", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it sent HTTP, this listener expects TLS"),
        (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", "it sent something that is not TLS"),
        (bytes(range(200)), "TLS with 127.0.0.1 failed"),
        (b"\x16\x03\x01\x02\x00" + bytes(600), "TLS with 127.0.0.1 failed"),
    ],
)
def test_garbage_instead_of_a_hello(stage: Stage, garbage: bytes, why: str) -> None:
    loop = stage.listen("tls")
    with connect_socket(loop.listener.address) as connected:
        connected.sendall(garbage)
        served = loop.only()
        loop.until(lambda: served.error, "the refusal")
        assert isinstance(served.error, StreamError)
        assert why in str(served.error)
        assert "\n" not in str(served.error)


def test_garbage_after_the_handshake(stage: Stage) -> None:
    loop = stage.listen("tls", echo=True)
    client = shake_hands(stage, loop, client_context(stage.certificates))
    raw = socket.socket(fileno=client.tls.detach())
    with raw:
        raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        served = loop.only()
        loop.until(lambda: served.error, "the refusal")
        assert isinstance(served.error, StreamError)


def test_peer_that_leaves_within_the_handshake(stage: Stage) -> None:
    loop = stage.listen("tls")
    connected = connect_socket(loop.listener.address)
    connected.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    served = loop.only()
    connected.close()
    loop.until(lambda: served.ended, "the end")
    assert served.error is None


def test_end_without_close_notify_is_an_end(stage: Stage) -> None:
    loop = stage.listen("tls", echo=True)
    client = shake_hands(stage, loop, client_context(stage.certificates))
    socket.socket(fileno=client.tls.detach()).close()
    served = loop.only()
    loop.until(lambda: served.ended, "the end")


def test_our_end_has_a_close_notify(stage: Stage) -> None:
    loop = stage.listen("tls", echo=True)
    context = client_context(stage.certificates)
    client = shake_hands(stage, loop, context)
    client.tls.suppress_ragged_eofs = False  # then an EOF without close_notify raises
    loop.only().stream.shut_down()
    assert stage.finish(loop, lambda: receive_all(client)) == b""


def test_data_after_our_goodbye_is_ignored(stage: Stage) -> None:
    loop = stage.listen("tls", echo=True)
    client = shake_hands(stage, loop, client_context(stage.certificates))
    served = loop.only()
    served.stream.shut_down()
    stage.finish(loop, lambda: client.send(b"too late"))
    client.socket.shutdown(socket.SHUT_WR)
    loop.until(lambda: served.ended, "the end")
    assert served.error is None
    assert served.received == b"hello"
    with pytest.raises(StreamError):
        served.stream.write(b"no more")


def test_reload_serves_the_new_certificate_and_keeps_old_connections(
    stage: Stage, tmp_path: Path
) -> None:
    old = make_test_certificates(tmp_path / "old")
    new = make_test_certificates(tmp_path / "new")
    settings = Tls(certificate=tmp_path / "live.pem", key=tmp_path / "live.key")
    shutil.copy(old.server, settings.certificate)
    shutil.copy(old.server_key, settings.key)
    loop = stage.listen("tls", echo=True, tls=settings)
    before = shake_hands(stage, loop, client_context(old))

    shutil.copy(new.server, settings.certificate)
    with pytest.raises(ConfigurationError, match="is not the key of"):
        loop.listener.reload_tls()  # half of the pair is still the old one
    shake_hands(stage, loop, client_context(old))

    shutil.copy(new.server_key, settings.key)
    loop.listener.reload_tls()
    shake_hands(stage, loop, client_context(new))

    def still_there() -> bytes:
        before.send(b"still here")
        return before.receive()

    assert stage.finish(loop, still_there) == b"still here"


def test_reload_with_another_authority_forgets_sessions(stage: Stage, tmp_path: Path) -> None:
    other = make_test_certificates(tmp_path / "other")
    settings = stage.tls(client_ca=stage.certificates.ca, require_client_certificate=True)
    loop = stage.listen("tls", echo=True, tls=settings)
    context = client_context(stage.certificates, with_certificate=True)
    client = shake_hands(stage, loop, context)
    session = client.tls.session
    changed = stage.tls(client_ca=other.ca, require_client_certificate=True)
    loop.listener.reload_tls(changed)
    assert loop.listener.config.tls == changed

    def dial() -> None:
        with connect_socket(loop.listener.address) as connected:
            TlsClient(connected, context, session).receive()

    with pytest.raises(ssl.SSLError):
        stage.finish(loop, dial)
    assert "its certificate is not accepted" in str(loop.served[1].error)


class TestFiles:
    """Each mistake in the files is one sentence that names the file."""

    def test_missing_file(self, stage: Stage, tmp_path: Path) -> None:
        settings = Tls(certificate=tmp_path / "no.pem", key=stage.certificates.server_key)
        with pytest.raises(ConfigurationError, match=r"cannot read .*no\.pem: No such file"):
            open_listener(stage.config("tls", tls=settings))

    def test_not_pem(self, stage: Stage, tmp_path: Path) -> None:
        junk = tmp_path / "junk.pem"
        junk.write_text("junk")
        settings = Tls(certificate=junk, key=stage.certificates.server_key)
        with pytest.raises(ConfigurationError, match=r"junk\.pem and .* are no certificate"):
            server_context(settings, "mqtt")

    def test_authorities_not_pem(self, stage: Stage, tmp_path: Path) -> None:
        junk = tmp_path / "ca.pem"
        junk.write_text("junk")
        with pytest.raises(ConfigurationError, match=r"ca\.pem holds no certificates"):
            server_context(stage.tls(client_ca=junk), "mqtt")

    def test_encrypted_key_does_not_ask_on_the_terminal(self, stage: Stage, tmp_path: Path) -> None:
        key = serialization.load_pem_private_key(
            stage.certificates.server_key.read_bytes(), password=None
        )
        locked = tmp_path / "locked.key"
        locked.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"secret"),
            )
        )
        with pytest.raises(ConfigurationError, match=r"locked\.key is encrypted"):
            server_context(Tls(certificate=stage.certificates.server, key=locked), "mqtt")
