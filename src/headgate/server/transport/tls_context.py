"""From the `tls` section of a listener to an OpenSSL context."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from headgate.config import Configuration
from headgate.config.listeners import Tls, TlsVersion
from headgate.contract.schema import IllegibleError, legible
from headgate.errors import ConfigurationError

_VERSIONS = {TlsVersion.V1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.V1_3: ssl.TLSVersion.TLSv1_3}

# TLS 1.2 suites with forward secrecy and authenticated encryption; TLS 1.3 has no others.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def server_context(tls: Tls, protocol: str) -> ssl.SSLContext:
    """Build a context; `protocol` is the one that ALPN offers.

    Raises `ConfigurationError` if a file cannot be used. Each context has its own keys for session
    tickets, so that a ticket does not outlive the authorities it was checked against.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.minimum_version]
    # Renegotiation would let a peer demand handshakes without end, and data wait for them.
    context.options |= (
        ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols([protocol])
    _load_certificate(context, tls)
    _load_authorities(context, tls)
    return context


def examine_tls(configuration: Configuration) -> Iterator[ConfigurationError]:
    """Read every file of the listeners' `tls`, and say which cannot be used; a draft will do."""
    try:
        listeners = list(legible(configuration.listeners, "tls"))
    except IllegibleError:
        return
    for _, listener in listeners:
        if listener.tls is None:
            continue
        for load in (_load_certificate, _load_authorities):
            try:
                load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), listener.tls)
            except ConfigurationError as error:
                yield error
            except IllegibleError:
                continue  # its mistake is known


def _load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    def refuse_to_ask() -> str:
        # OpenSSL would otherwise ask on the terminal of a daemon, and wait.
        raise ConfigurationError(f"{tls.key} is encrypted: the broker needs a key without password")

    for path in (tls.certificate, tls.key):
        _readable(path)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=refuse_to_ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            sentence = f"{tls.key} is not the key of {tls.certificate}"
        else:
            sentence = f"{tls.certificate} and {tls.key} are no certificate and key in PEM form"
        raise ConfigurationError(sentence) from None


def _load_authorities(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.client_ca is None:
        return
    _readable(tls.client_ca)
    try:
        context.load_verify_locations(tls.client_ca)
    except ssl.SSLError:
        raise ConfigurationError(f"{tls.client_ca} holds no certificates in PEM form") from None
    required = tls.require_client_certificate
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL


def _readable(path: Path) -> None:
    """OpenSSL does not say which of its files is missing."""
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
