"""`headgate pipeline JOB`"""

from __future__ import annotations

import math
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

EXAMPLE = """
\b
Examples:
  headgate pipeline observe records metrics                    all that was recorded so far
  headgate pipeline observe records metrics --follow 10s       as it comes, until Ctrl-C
  headgate pipeline connectivity records habits --config headgate.yaml
  headgate pipeline sweep planemqx dataset --points 20000
  headgate pipeline observe s3a://b/records s3a://b/metrics --master spark://head:7077
"""


def time(text: str) -> float:
    """A duration as the configuration has it, in seconds."""
    try:
        seconds = duration(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise click.BadParameter(f"expected a duration such as 10s, 5min or 250ms, found {text!r}")
    return seconds


def span(text: str) -> tuple[float, float]:
    """Two numbers: `0.5..1.2`."""
    low, _, high = text.partition("..")
    try:
        bounds = float(low), float(high or low)
    except ValueError:
        bounds = 0.0, -1.0
    if not 0 <= bounds[0] <= bounds[1] < math.inf:
        raise click.BadParameter(f"expected LOW..HIGH such as 0.5..1.2, found {text!r}")
    return bounds


@click.group(epilog=EXAMPLE)
def pipeline() -> None:
    """Spark jobs that make knowledge of what the broker recorded."""


def with_spark(command: Callable[..., None]) -> Callable[..., None]:
    """The options that every job has."""
    for option in (
        click.option("--progress/--no-progress", default=None, help="A bar for long stages."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting."),
        click.option("--remote", metavar="URL", help="Spark Connect: sc://HOST:PORT."),
        click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
    ):
        command = option(command)
    return command


@pipeline.command()
@click.argument("records")
@click.argument("output")
@click.option(
    "--config",
    "source",
    type=click.Path(path_type=Path),
    help="Configuration whose requirements are judged.",
)
@click.option("--window", type=time, default="10s", show_default=True, help="Window length.")
@click.option(
    "--lateness",
    type=time,
    default="3min",
    show_default=True,
    help="How late a record may be; with --follow.",
)
@click.option("--follow", type=time, help="Go on with what comes, looking every so often: 10s.")
@click.option(
    "--files", default=200, show_default=True, help="Segments in one step; with --follow."
)
@click.option("--catch-up", is_flag=True, help="Go on where --follow or --catch-up ended, and end.")
@with_spark
def observe(
    records: str,
    output: str,
    source: Path | None,
    window: float,
    lateness: float,
    follow: float | None,
    files: int,
    catch_up: bool,
    **spark: Any,
) -> None:
    """Measure what each flow, application, category, topic and link experienced.

    Reads the broker's RECORDS and writes Parquet to OUTPUT (docs/pipeline.md).
    """
    options = spark_options(spark)
    from headgate.pipeline.jobs import observe as job  # noqa: PLC0415
    from headgate.pipeline.session import spark_session  # noqa: PLC0415

    config = Configuration() if source is None else load(source)
    task = job.Observe(records, output, window, lateness, files)
    with naming("observe", records), spark_session(options, tell) as session:
        if follow is None and not catch_up:
            result = job.observe(session, task, config)
            for name in result.unreadable:
                click.echo(f"passed over, because it cannot be read: {name}", err=True)
            click.echo(f"{result.rows} rows of metrics written to {output}")
            return
        query = job.follow(session, task, config, follow)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()


@pipeline.command()
@click.argument("records")
@click.argument("output")
@click.option(
    "--config",
    "source",
    type=click.Path(path_type=Path),
    help="Configuration whose thresholds (threshold_s) are kept.",
)
@with_spark
def connectivity(records: str, output: str, source: Path | None, **spark: Any) -> None:
    """Estimate how long clients stay and are away, and what to queue meanwhile.

    Reads the broker's RECORDS and writes Parquet to OUTPUT (docs/pipeline.md).
    """
    options = spark_options(spark)
    from headgate.pipeline.jobs import connectivity as job  # noqa: PLC0415
    from headgate.pipeline.session import spark_session  # noqa: PLC0415

    config = Configuration() if source is None else load(source)
    with naming("connectivity", records), spark_session(options, tell) as session:
        rows = job.connectivity(session, records, output, config)
    click.echo(f"{rows} clients written to {output}")


@pipeline.command()
@click.argument("scenario")
@click.argument("output")
@click.option("--points", default=1000, show_default=True, help="Situations to simulate.")
@click.option("--load", type=span, default="0.5..1.2", show_default=True, help="Of all topics, ×.")
@click.option("--rate", type=span, default="1..1", show_default=True, help="Of all links, ×.")
@click.option("--drop", type=span, default="0..0.1", show_default=True, help="Of each category.")
@click.option("--levels", type=click.IntRange(1, 16), default=4, show_default=True)
@click.option("--duration", type=time, default="60s", show_default=True, help="Simulated.")
@click.option("--warmup", type=time, default="10s", show_default=True, help="Not counted.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True)
@with_spark
def sweep(
    scenario: str,
    output: str,
    points: int,
    load: tuple[float, float],
    rate: tuple[float, float],
    drop: tuple[float, float],
    levels: int,
    duration: float,
    warmup: float,
    seed: int,
    **spark: Any,
) -> None:
    """Simulate SCENARIO in many situations and under many policies.

    SCENARIO is a file or a built-in name. Points that OUTPUT has already are not simulated again.
    """
    options = spark_options(spark)
    from headgate.experiments.scenarios import load as load_scenario  # noqa: PLC0415
    from headgate.pipeline.jobs import sweep as job  # noqa: PLC0415
    from headgate.pipeline.session import spark_session  # noqa: PLC0415
    from headgate.pipeline.sweeping import Space  # noqa: PLC0415

    if warmup >= duration:
        raise ConfigurationError("--warmup must be shorter than --duration")
    space = Space(load, rate, drop, levels)
    task = job.Sweep(output, space, points, seed, duration, warmup)
    loaded = load_scenario(scenario)
    with (
        naming("sweep", scenario),
        spark_session(options, tell) as session,
        click.progressbar(length=points, label="simulating", file=sys.stderr) as bar,
    ):
        done = job.sweep(session, task, loaded, bar.update)
    click.echo(f"{done} points simulated, {points} are in {output}")


def tell(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def naming(job: str, place: str) -> Iterator[None]:
    """Errors of Spark say which job failed, on what, and why: in one line."""
    try:
        yield
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
