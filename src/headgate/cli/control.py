"""`headgate control` and `headgate history`"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from headgate.config import Address, load
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

`headgate serve` starts one by itself; this is for a controller elsewhere, or a second one that
stands by.
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
@click.option("--password", help="Its password; without one it is asked for.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the history is kept.")
@click.option("--companion", is_flag=True, hidden=True, help="Started by the broker.")
def control(
    source: Path,
    broker: str,
    user: str | None,
    password: str | None,
    data_dir: Path | None,
    companion: bool,
) -> None:
    """Watch a broker, plan, and apply what was planned (planner.mode: auto) or propose it."""
    try:
        from headgate.control.process import Door, run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{error.name} is missing: pip install 'headgate[model,planner]'"
        ) from None
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s controller: %(message)s"
    )
    config = load(source)
    if data_dir is not None:
        config = replace(config, data_dir=data_dir)
    if companion:
        secret = sys.stdin.readline().strip()
        run(config, Door(Address(path=broker), USER, secret), sys.stdin)
        return
    if user is not None and password is None:
        password = click.prompt("Password", hide_input=True)
    try:
        where = address(broker)
    except ValueError as error:
        raise ConfigurationError(f"--broker {broker}: {error}") from None
    run(config, Door(where, user, password))


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
        _show_pddl(data_dir, version, out)
        return
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


def _compared(record: Record) -> Iterator[str]:
    """What was expected beside what was measured, where both are known."""
    for name, measured in record.measured.items():
        expected = record.predicted.get(name)
        if expected is not None and record.event in ("confirmed", "rolled back"):
            yield f"{name}: {measured:.0%} of what it asked for, {expected:.0%} expected"


def _show_pddl(data_dir: Path, version: int, out: Path | None) -> None:
    """The plan of one policy, as it was written down when it was made."""
    from headgate.control.archive import Archive  # noqa: PLC0415
    from headgate.control.history import History  # noqa: PLC0415

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
