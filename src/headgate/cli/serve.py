"""`headgate serve`"""

from __future__ import annotations

import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click
from click.core import ParameterSource
from msgspec.structs import replace

from headgate import is_compiled
from headgate.config import Address, Configuration, PlannerMode, defaults, load
from headgate.errors import ConfigurationError
from headgate.server.companion import Companion
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
    help="Configuration file; options given besides it replace its settings.",
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
    help="Port; 0 takes a free one.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Where sessions and retained messages are kept.",
)
@click.option("--no-web", is_flag=True, help="Without the dashboard (this version has none).")
@click.option("--no-planner", is_flag=True, help="Without the planner, whatever the file says.")
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
    # Messages, sessions and plans are nobody else's business, whatever the shell's default is.
    os.umask(os.umask(0o077) | 0o077)
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    if not is_compiled():
        logging.warning("the hot path is not compiled: several times slower (needs a C compiler)")
    config = defaults(host, port, data_dir) if source is None else configured(source)
    companion = None
    if source is not None and config.planner.mode is not PlannerMode.OFF and not no_planner:
        companion = controller(config, source)
    Server(config, source, companion).run(announce)


def controller(config: Configuration, source: Path) -> Companion | None:
    """The planner's process beside the broker, if what it needs is installed."""
    missing = [name for name in ("numpy", "scipy", "ortools", "paho") if find_spec(name) is None]
    if missing:
        logging.warning(
            "planner.mode is %s, but %s is missing: pip install 'headgate[model,planner]'",
            config.planner.mode,
            missing[0],
        )
        return None
    command = [sys.executable, "-m", "headgate.cli", "control", "--companion"]
    command += ["--config", str(source), "--data-dir", str(config.data_dir), "--broker"]
    return Companion(config.data_dir, command)


def configured(source: Path) -> Configuration:
    """The file's configuration, with what the command line says otherwise."""
    config = load(source)
    context = click.get_current_context()

    def given(option: str) -> bool:
        return context.get_parameter_source(option) is ParameterSource.COMMANDLINE

    if given("data_dir"):
        config = replace(config, data_dir=context.params["data_dir"])
    if given("host") or given("port"):
        if len(config.listeners) != 1 or config.listeners[0].address.path:
            raise ConfigurationError(
                f"{source} has its own listeners: --host and --port go with a file that has one"
            )
        (listener,) = config.listeners
        address = Address(
            host=context.params["host"] if given("host") else listener.address.host,
            port=context.params["port"] if given("port") else listener.address.port,
        )
        config = replace(config, listeners=(replace(listener, address=address),))
    return config


def announce(server: Server) -> None:
    """The one line that says that clients may come."""
    places = ", ".join(
        f"{listener.config.type.value}://{listener.address}" for listener in server.listeners
    )
    if server.metrics is not None and server.config.metrics is not None:
        places += f"; metrics on http://{server.config.metrics.address.host}:{server.metrics.port}"
    click.echo(f"headgate ready on {places}")
