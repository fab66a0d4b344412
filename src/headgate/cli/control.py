"""`headgate control` and `headgate history`"""

from __future__ import annotations

import logging
import shutil
import ssl
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from headgate.config import Address, Configuration, load
from headgate.config.addresses import address
from headgate.errors import ConfigurationError
from headgate.server.companion import USER

if TYPE_CHECKING:
    from headgate.control.history import Record

CONTROL_EXAMPLE = """
\b
Examples:
  headgate control --config headgate.yaml                         the broker on 127.0.0.1:1883
  headgate control --config headgate.yaml --broker 10.0.0.5:1883 --user ops   asks for the password
  headgate control --config headgate.yaml --broker mqtt.site:8883 --ca ca.pem --user ops

`headgate serve` starts one by itself; this is for a controller elsewhere, or a second one that
stands by. SIGHUP makes it read the configuration again.
"""
HISTORY_EXAMPLE = """
\b
Examples:
  headgate history --data-dir data             what the controller did, and why
  headgate history --data-dir data -n 5 --json
  headgate history --data-dir data --pddl 7    the plan of policy 7 as PDDL, to read or solve again
"""


@click.command(epilog=CONTROL_EXAMPLE)
@click.option(
    "--config",
    "source",
    type=click.Path(path_type=Path),
    required=True,
    help="The broker's configuration: applications, links and planner are taken from it.",
)
@click.option("--broker", default="127.0.0.1:1883", show_default=True, help="HOST:PORT, or a path.")
@click.option("--user", help="A user with the role admin.")
@click.option(
    "--password",
    envvar="HEADGATE_PASSWORD",
    help="Its password; without one HEADGATE_PASSWORD is read, or it is asked for.",
)
@click.option(
    "--tls", is_flag=True, help="The listener speaks TLS, by a certificate of the system's CAs."
)
@click.option(
    "--ca", type=click.Path(path_type=Path), help="TLS, by a certificate of this CA (PEM)."
)
@click.option(
    "--cert", type=click.Path(path_type=Path), help="TLS: a certificate of its own (PEM)."
)
@click.option("--key", type=click.Path(path_type=Path), help="TLS: the key of --cert (PEM).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the history is kept.")
@click.option("--companion", is_flag=True, hidden=True, help="Started by the broker.")
def control(
    source: Path,
    broker: str,
    user: str | None,
    password: str | None,
    tls: bool,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    data_dir: Path | None,
    companion: bool,
) -> None:
    """Watch a broker, plan, and apply what was planned (planner.mode: auto) or propose it."""
    try:
        from headgate.control.process import Door, run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s controller: %(message)s"
    )

    def read() -> Configuration:
        config = load(source)
        return config if data_dir is None else replace(config, data_dir=data_dir)

    config = read()
    if companion:
        secret = sys.stdin.readline().strip()
        run(config, Door(Address(path=broker), USER, secret), sys.stdin, read)
        return
    if user is not None and password is None:
        password = click.prompt("Password", hide_input=True)
    try:
        where = address(broker)
    except ValueError as error:
        raise ConfigurationError(f"--broker {broker}: {error}") from None
    secured = _tls(ca, cert, key) if tls or ca is not None or cert is not None else None
    run(config, Door(where, user, password, secured), None, read)


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Who the broker is by its certificate, and who we are, where it asks."""
    for option, path in (("--ca", ca), ("--cert", cert), ("--key", key)):
        if path is not None and not path.is_file():
            raise ConfigurationError(f"{option} {path}: there is no such file")
    if key is not None and cert is None:
        raise ConfigurationError("--key: it belongs to a certificate, give that with --cert")
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(
            f"--ca, --cert, --key: not certificates and a key in PEM ({error})"
        ) from None
    return context


@click.command(epilog=HISTORY_EXAMPLE)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="The broker's data directory.",
)
@click.option("-n", "count", type=click.IntRange(1), default=20, show_default=True, help="Last N.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--pddl", "version", type=int, help="Show the plan of this policy as PDDL.")
@click.option("--out", type=click.Path(path_type=Path), help="With --pddl: copy the files here.")
def history(
    data_dir: Path, count: int, as_json: bool, version: int | None, out: Path | None
) -> None:
    """What the controller saw, what it decided, and why."""
    from headgate.control.history import History  # noqa: PLC0415

    if version is not None:
        _look_for(data_dir)
        _show_pddl(data_dir, version, out)
        return
    _look_for(data_dir)
    records = list(History(data_dir))[-count:]
    if not records and not as_json:
        click.echo(f"{data_dir} has no history: the planner was off, or had nothing to decide")
    for record in records:
        if as_json:
            click.echo(msgspec.json.encode(record).decode())
            continue
        when = datetime.fromtimestamp(record.time, UTC).isoformat(timespec="seconds")
        click.echo(f"{when}  policy {record.version}  {record.event}: {record.why}")
        for line in [*record.conflicts, *record.steps, *_compared(record)]:
            click.echo(f"    {line}")


def _look_for(data_dir: Path) -> None:
    if not data_dir.is_dir():
        raise ConfigurationError(
            f"--data-dir {data_dir}: there is no such folder; it is the broker's data_dir"
        )


def _compared(record: Record) -> Iterator[str]:
    """What was expected beside what was measured, where both are known."""
    for name, measured in record.measured.items():
        expected = record.predicted.get(name)
        if expected is not None and record.event in ("confirmed", "missed", "rolled back"):
            yield f"{name}: {measured:.0%} of what it asked for, {expected:.0%} expected"


def _show_pddl(data_dir: Path, version: int, out: Path | None) -> None:
    """The plan of one policy, as it was written down when it was made."""
    from headgate.control.history import History  # noqa: PLC0415

    try:
        from headgate.control.archive import Archive  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    archive = Archive(data_dir)
    names = [r.pddl for r in History(data_dir) if r.version == version and archive.files(r.pddl)]
    if not names:
        raise ConfigurationError(f"{data_dir} has no plan of policy {version} as PDDL")
    for file in archive.files(names[-1]):
        if out is None:
            click.echo(f"; {file.name}\n{file.read_text()}")
            continue
        try:
            out.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, out / file.name)
        except OSError as error:
            raise ConfigurationError(f"cannot write {error.filename}: {error.strerror}") from None


def _missing(error: ModuleNotFoundError) -> ConfigurationError:
    return ConfigurationError(f"{error.name} is missing: pip install 'headgate[model,planner]'")
