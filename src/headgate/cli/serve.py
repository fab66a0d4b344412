"""`headgate serve`"""

from __future__ import annotations

import logging
from pathlib import Path

import click

from headgate import is_compiled
from headgate.config import Configuration, defaults, load
from headgate.server.server import Server

EXAMPLE = """
\b
Examples:
  headgate serve                                  on 127.0.0.1:1883, data in ./data
  headgate serve --port 2883 --data-dir /tmp/hg   elsewhere
  headgate serve --config headgate.yaml           as the file says (docs/configuration.md)

SIGTERM and Ctrl-C stop it cleanly; SIGHUP reads the file again without dropping a connection.
"""


@click.command(epilog=EXAMPLE)
@click.option(
    "--config",
    "source",
    type=click.Path(path_type=Path),
    help="Configuration file; its settings replace the options below.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Loopback address; others need --config."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=1883,
    show_default=True,
    metavar="N",
    help="Port, without --config; 0 takes a free one.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Where sessions and retained messages are kept, without --config.",
)
@click.option("--no-web", is_flag=True, help="Without the dashboard (this version has none).")
@click.option("--no-planner", is_flag=True, help="Without the planner (this version has none).")
@click.option("-v", "--verbose", is_flag=True, help="Log more, for debugging.")
def serve(
    source: Path | None,
    host: str,
    port: int,
    data_dir: Path,
    no_web: bool,
    no_planner: bool,
    verbose: bool,
) -> None:
    """Run the broker until it is told to stop."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    if not is_compiled():
        logging.warning("the hot path is not compiled: several times slower (needs a C compiler)")
    config: Configuration = load(source) if source else defaults(host, port, data_dir)
    Server(config, source).run(announce)


def announce(server: Server) -> None:
    """The one line that says that clients may come."""
    places = ", ".join(
        f"{listener.config.type.value}://{listener.address}" for listener in server.listeners
    )
    click.echo(f"headgate ready on {places}")
