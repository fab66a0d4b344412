"""What the commands of the pipeline share: options, Spark's session, errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.config import Configuration, load
from headgate.config.units import duration
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.pipeline.session import Options


def time(text: str) -> float:
    """A duration as the configuration has it, in seconds."""
    try:
        seconds = duration(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise click.BadParameter(f"expected a duration such as 10s, 5min or 250ms, found {text!r}")
    return seconds


Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def together(*options: Decorator) -> Decorator:
    """Several options as one, in the order in which `--help` shows them."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


with_places = together(click.argument("records"), click.argument("output"))
"""RECORDS and OUTPUT: of jobs that make tables of what the broker recorded."""

with_result = together(
    click.option(
        "--keep", type=click.IntRange(1), default=10, show_default=True, help="Versions that stay."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)
"""Of jobs that make a version of knowledge, and tell what it is worth."""


with_spark = together(
    click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
    click.option("--remote", metavar="URL", help="Spark Connect: sc://HOST:PORT."),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting."),
    click.option("--progress/--no-progress", default=None, help="A bar for long stages."),
)
"""The options that every job has."""


def with_config(what: str) -> Decorator:
    """The option `--config`: the broker's own file, or the defaults."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        callback=lambda _context, _option, path: Configuration() if path is None else load(path),
        help=f"Configuration {what}.",
    )


def with_window(default: str) -> Decorator:
    """The length of the windows in which records are looked at."""
    return click.option(
        "--window", type=time, default=default, show_default=True, help="Window length."
    )


def with_following(what: str, files: int) -> Decorator:
    """Options of jobs that can go on with what comes; `what` may be late."""
    return together(
        click.option(
            "--follow", type=time, help="Go on with what comes, looking every so often: 10s."
        ),
        click.option(
            "--catch-up", is_flag=True, help="Go on where --follow or --catch-up ended, and end."
        ),
        click.option(
            "--lateness",
            type=time,
            default="3min",
            show_default=True,
            help=f"How late {what}; with --follow and --catch-up.",
        ),
        click.option(
            "--files",
            type=click.IntRange(min=1),
            default=files,
            show_default=True,
            help="Segments in one step, at most.",
        ),
    )


def tell(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def naming(job: str, place: str) -> Iterator[None]:
    """Errors say which job failed, on what, and why: in one line."""
    try:
        yield
    except ConfigurationError as error:  # names the input, and does not know the job
        raise ConfigurationError(f"{job}: {error}") from error
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        raise ConfigurationError(f"{job} of {place} failed: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """The innermost cause that Java tells, or else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    useful = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (useful or ["no reason is known"])[0].removeprefix(": ")


def spark_options(given: dict[str, Any]) -> Options:
    try:
        from headgate.pipeline.session import Options  # noqa: PLC0415
    except ModuleNotFoundError as error:
        # The broker runs without Spark; only these commands need it.
        raise ConfigurationError(
            f"{error.name} is missing: pip install 'headgate[pipeline]'"
        ) from None
    settings = {}
    for pair in given["conf"]:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigurationError(f"--conf {pair}: expected KEY=VALUE")
        settings[key] = value
    progress = given["progress"]
    return Options(
        master=given["master"],
        remote=given["remote"],
        conf=settings,
        progress=sys.stderr.isatty() if progress is None else progress,
    )
