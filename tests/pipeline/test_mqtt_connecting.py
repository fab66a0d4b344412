"""Options and connections of format("mqtt"), without Spark: mistakes, TLS, passwords."""

from __future__ import annotations

import ipaddress
import pickle
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from broker_process import COMMAND, BrokerProcess, StartBroker
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from headgate.errors import ConfigurationError
from headgate.pipeline.mqtt.batch import Filters, MqttReader
from headgate.pipeline.mqtt.connection import Connection
from headgate.pipeline.mqtt.options import BATCH, STREAM, WRITING, broker_of
from headgate.pipeline.mqtt.stream import MqttStreamReader
from headgate.pipeline.mqtt.writer import MqttWriter

TEXT = StringType()
PLACE = {"broker": "mqtt://127.0.0.1:1883", "topics": "a/#"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topics": "a"}, "needs the option broker"),
        (
            {"broker": "http://x"},
            r"expected mqtt://HOST:PORT or mqtts://HOST:PORT, found 'http://x'",
        ),
        ({"broker": "127.0.0.1:port", "topics": "a"}, "expected mqtt://HOST:PORT"),
        ({"broker": "127.0.0.1"}, "needs the option topics"),
        ({**PLACE, "topics": "a/#/b"}, "# is not alone in the last level"),
        ({**PLACE, "topics": '["a", '}, "not a JSON array"),
        ({**PLACE, "qos": "2"}, "option qos: expected a whole number from 0 to 1, found '2'"),
        ({**PLACE, "quiet": "soon"}, "option quiet: expected seconds above 0"),
        ({**PLACE, "ca": "ca.pem"}, "broker must begin with mqtts://"),
        ({**PLACE, "broker": "mqtts://h", "cert": "c.pem"}, "cert and key belong together"),
        ({**PLACE, "topic": "a"}, "no option topic for batches: known are broker, user"),
        ({**PLACE, "what": "all"}, "expected retained or session, found 'all'"),
        ({**PLACE, "what": "session"}, "needs the option clientId"),
    ],
)
def test_mistakes_are_told_in_a_sentence(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        MqttReader(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (PLACE, "needs the option spool"),
        ({**PLACE, "spool": "s3a://bucket/spool"}, "no folder of a file system"),
        ({**PLACE, "spool": "s", "readers": "none"}, "option readers: expected a whole number"),
        ({**PLACE, "spool": "s", "ship": "yes"}, "expected true or false, found 'yes'"),
        (
            {**PLACE, "spool": "s", "topics": "$share/g/a", "readers": "2"},
            "is shared already",
        ),
    ],
)
def test_mistakes_of_streams(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        MqttStreamReader(given)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"topic": TEXT}, "needs a column payload"),
        ({"payload": TEXT}, "needs a column topic, or the option topic"),
        (
            {"topic": TEXT, "payload": IntegerType()},
            "column payload: expected binary or string, found int",
        ),
        ({"topic": TEXT, "payload": TEXT, "mood": TEXT}, "cannot publish a column 'mood'"),
    ],
)
def test_mistakes_of_writers(columns: dict[str, DataType], said: str) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    with pytest.raises(ConfigurationError, match=said):
        MqttWriter({"broker": "127.0.0.1"}, schema)


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mqtt-source.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page.partition("\n## Options\n")[2], re.M)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    elsewhere = {"userEnv", "passwordEnv", "passwordFile"}  # in the row of `user`
    assert documented | elsewhere == {*BATCH, *STREAM, *WRITING}


def test_a_reader_travels_to_workers_without_its_connections(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    given = {"broker": f"127.0.0.1:{broker.port}", "topics": "travels/#", "spool": f"{tmp_path}"}
    reader = MqttStreamReader(given)
    start = reader.initialOffset()
    try:
        assert reader.latestOffset(start, ReadAllAvailable()) == start == {"segment": 0}
        copy = pickle.loads(pickle.dumps(reader))
        assert copy.reading == reader.reading
        assert copy._receiving is None
    finally:
        reader.stop()


def test_a_broker_that_is_not_there() -> None:
    reader = MqttReader({"broker": "127.0.0.1:1", "topics": "a"})
    with pytest.raises(
        ConfigurationError, match=r"no MQTT broker at mqtt://127\.0\.0\.1:1: .*refused"
    ):
        list(reader.read(Filters(("a",))))


def test_a_spool_serves_one_query(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.pipeline.mqtt.spool.PATIENCE", 0.2)
    given = {"broker": f"127.0.0.1:{broker.port}", "topics": "one/#", "spool": f"{tmp_path}"}
    first, second = MqttStreamReader(given), MqttStreamReader(given)
    first.initialOffset()
    try:
        with pytest.raises(ConfigurationError, match="is used by another query"):
            second.initialOffset()
    finally:
        first.stop()
    with pytest.raises(ConfigurationError, match="belongs to 'headgate-spark-"):
        MqttStreamReader({**given, "clientid": "other"}).initialOffset()
    checkpoint_of_another = {"segment": 7}
    with pytest.raises(ConfigurationError, match="has only had 0: it is another's"):
        second.latestOffset(checkpoint_of_another, ReadAllAvailable())
    second.stop()


def test_tls_with_a_password_from_a_file_and_from_the_environment(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path)
    users = tmp_path / "users"
    subprocess.run([COMMAND, "passwd", users, "spark"], input=b"open sesame\n", check=True)
    process = start_broker(
        f"listeners: [{{type: tls, address: '127.0.0.1:0', "
        f"tls: {{certificate: {certificate}, key: {key}}}}}]\n"
        f"auth: {{allow_anonymous: false, password_file: {users}}}\n"
    )
    place = f"mqtts://{process.addresses['tls']}"
    (tmp_path / "secret").write_text("open sesame\n")
    monkeypatch.setenv("SITE_PASSWORD", "open sesame")
    known = {"broker": place, "ca": str(certificate), "user": "spark"}
    for way in ({"passwordfile": str(tmp_path / "secret")}, {"passwordenv": "SITE_PASSWORD"}):
        connection = Connection(broker_of({**known, **way}), "")
        connection.open(["a"])
        connection.close()
    with pytest.raises(ConfigurationError, match=r"refuses the connection: (Not auth|Bad user)"):
        Connection(broker_of({**known, "password": "wrong"}), "").open()
    with pytest.raises(ConfigurationError, match="no variable NOWHERE here"):
        Connection(broker_of({**known, "passwordenv": "NOWHERE"}), "").open()
    with pytest.raises(ConfigurationError, match="certificate verify failed"):
        Connection(broker_of({"broker": place}), "").open()


def self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    return certificate, secret


def usage() -> x509.KeyUsage:
    """Of a certificate that vouches for itself."""
    used = {"digital_signature": True, "key_cert_sign": True}
    others = (
        *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
        *("crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**used, **dict.fromkeys(others, False))
