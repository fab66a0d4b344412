"""A controller elsewhere: in through TLS as a user, killed, and back where it was."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import COMMAND
from click.testing import CliRunner
from server.transport.certificates import TestCertificates, make_test_certificates

from control.test_live_control import CONFIG, Site, wait_until
from headgate.cli.main import commands
from headgate.control.history import Event, History
from headgate.errors import ConfigurationError

PASSWORD = "battery staple"


class Remote:
    """`headgate control` with a data directory of its own."""

    def __init__(self, folder: Path, broker: str, ca: Path, config: str) -> None:
        folder.mkdir()
        self.data = folder / "data"
        self.data.mkdir()
        self.errors = folder / "stderr"
        self.config = folder / "headgate.yaml"
        self.config.write_text(config)
        words = ["--config", folder / "headgate.yaml", "--broker", broker, "--ca", ca]
        self._command = [COMMAND, "control", *words, "--user", "ops", "--data-dir", self.data]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, password: str = PASSWORD) -> None:
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self._command, stderr=errors, env={**os.environ, "HEADGATE_PASSWORD": password}
            )

    def configure(self, config: str) -> None:
        assert self.process is not None
        self.config.write_text(config)
        self.process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    @property
    def said(self) -> str:
        return self.errors.read_text()

    def history(self) -> list[str]:
        return [f"{record.event}: {record.why}" for record in History(self.data)]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TestCertificates:
    return make_test_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def site(tmp_path: Path, certificates: TestCertificates) -> Iterator[Site]:
    """A broker without a controller of its own, that lets `ops` in through TLS."""
    users = tmp_path / "users"
    words = ["passwd", str(users), "ops", "--roles", "admin"]
    assert CliRunner().invoke(commands, words, input=f"{PASSWORD}\n").exit_code == 0
    tls = f"{{certificate: {certificates.server}, key: {certificates.server_key}}}"
    config = CONFIG.replace("mode: auto", "mode: off").replace(
        "auth: {local_roles: [admin]}",
        f"auth: {{allow_anonymous: true, password_file: {users}}}\n"
        "listeners:\n"
        '  - {type: tcp, address: "127.0.0.1:0"}\n'
        f'  - {{type: tls, address: "127.0.0.1:0", tls: {tls}}}',
    )
    made = Site(tmp_path / "site", config)
    yield made
    made.close()


def test_it_plans_from_elsewhere_and_takes_up_where_it_was(
    site: Site, tmp_path: Path, certificates: TestCertificates
) -> None:
    where = site.broker.addresses["tls"]
    remote = Remote(tmp_path / "remote", where, certificates.ca, CONFIG)
    remote.start()
    try:
        wait_until(lambda: site.version > 0, f"no policy\n{remote.said}")
        wait_until(lambda: bool(remote.history()), "no history")
        assert remote.history()[0] == "applied: nothing was planned yet"
        remote.kill()
        version, got = site.version, site.got
        wait_until(lambda: site.got > got + 50, "messages do not arrive any more")
        assert site.version == version  # what it planned stays
        remote.start()
        found = f"the controller came back and found policy {version}"
        wait_until(
            lambda: any(found in line for line in remote.history()),
            f"it did not take up where it was: {remote.history()}\n{remote.said}",
        )
        # What it does not know, it plans for: the link becomes slower.
        site.broker.write_config(site.broker.text.replace("rate: 1Mbit", "rate: 700kbit"))
        os.kill(site.broker.pid, signal.SIGHUP)
        wait_until(lambda: site.version > version, f"no new policy\n{remote.said}")
        assert any("floor changed from 980 kbit/s to 686 kbit/s" in r for r in remote.history())
        # And it reads its own configuration again.
        remote.configure(CONFIG.replace("mean_ms: 30", "mean_ms: 40"))
        wait_until(
            lambda: (
                any("the configuration was read again" in r for r in remote.history())
                or "the configuration was read again" in remote.said
            ),
            f"not read: {remote.said}",
        )
        remote.configure("planner: {mode: perhaps}")
        wait_until(lambda: "the configuration stays as it was" in remote.said, remote.said)
    finally:
        if remote.process is not None:
            remote.kill()


def test_a_wrong_password_and_a_stranger_s_certificate_are_told(
    site: Site, tmp_path: Path, certificates: TestCertificates
) -> None:
    where = site.broker.addresses["tls"]
    for name, ca, password, told in (
        ("wrong", certificates.ca, "guess", "the broker refused the controller"),
        ("stranger", make_test_certificates(tmp_path / "other").ca, PASSWORD, "certificate"),
    ):
        remote = Remote(tmp_path / name, where, ca, CONFIG)
        remote.start(password)
        try:
            wait_until(lambda r=remote, t=told: t in r.said, f"not told: {told}\n{remote.said}")  # type: ignore[misc]
        finally:
            remote.kill()
    assert site.version == 0


def test_files_that_are_no_certificates_get_a_sentence(tmp_path: Path) -> None:
    config = tmp_path / "headgate.yaml"
    config.write_text("planner: {mode: auto}\n")
    bad = tmp_path / "bad.pem"
    bad.write_text("not PEM")
    for words, sentence in (
        (["--ca", str(tmp_path / "none.pem")], "none.pem: there is no such file"),
        (["--ca", str(bad)], "not certificates and a key in PEM"),
        (["--tls", "--key", str(bad)], "give that with --cert"),
    ):
        done = CliRunner().invoke(commands, ["control", "--config", str(config), *words])
        assert isinstance(done.exception, ConfigurationError)
        assert sentence in str(done.exception)


def test_live_plans_for_later_and_advice_pass_the_simulator(tmp_path: Path) -> None:
    """`simulate: true`: what can wait is rehearsed in the running controller."""
    config = CONFIG.replace("mode: auto", "mode: advise, simulate: true")
    site = Site(tmp_path, config)
    try:
        history = History(tmp_path / "data")
        wait_until(
            lambda: any(r.event is Event.ADVISED for r in history),
            f"no advice\n{site.broker.errors}",
        )
        (advice, *_) = [r for r in history if r.event is Event.ADVISED]
        assert "; simulated: it keeps what it promises" in advice.why
        assert site.version == 0
    finally:
        site.close()
