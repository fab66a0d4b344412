"""`headgate pipeline lake`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headgate.cli.pipeline.common import (
    naming,
    spark_options,
    tell,
    time,
    with_following,
    with_places,
    with_spark,
)
from headgate.errors import ConfigurationError

EXAMPLE = """
\b
Examples:
  headgate pipeline lake records lake                        all anew, from what was captured
  headgate pipeline lake records lake --follow 10s           as it comes, until Ctrl-C
  headgate pipeline lake records lake --catch-up --compact   go on where it ended, and end
  headgate pipeline lake records lake --registry sensors.yaml --format 'plant/#=cbor'
"""


@click.command(epilog=EXAMPLE)
@with_places
@with_following("a value may be to count in gold", files=50)
@click.option(
    "--registry",
    type=click.Path(path_type=Path, dir_okay=False),
    help="What is known of sensors: YAML, CSV or Parquet.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="FILTER=FORMAT",
    help="Format of topics: json, text, cbor, sparkplug; else it is found out.",
)
@click.option(
    "--interval", type=time, default="1min", show_default=True, help="Of gold's statistics."
)
@click.option(
    "--patience",
    type=click.FloatRange(min=1),
    default=3.0,
    show_default=True,
    help="Periods without a value from which it is a gap.",
)
@click.option("--compact", is_flag=True, help="Make one file of each day that is over, at the end.")
@with_spark
def lake(
    records: str,
    output: str,
    follow: float | None,
    catch_up: bool,
    registry: Path | None,
    formats: tuple[str, ...],
    interval: float,
    lateness: float,
    patience: float,
    files: int,
    compact: bool,
    **spark: Any,
) -> None:
    """Make tables of what was published: as it came, decoded, and by sensor and interval.

    Reads captured messages from the broker's RECORDS and writes Parquet below OUTPUT: bronze,
    silver, quarantine, gold (docs/lake.md).
    """
    if follow is not None and (catch_up or compact):
        raise ConfigurationError("--follow does not go together with --catch-up or --compact")
    options = spark_options(spark)
    from headgate.pipeline.jobs import lake as job  # noqa: PLC0415
    from headgate.pipeline.lake.formats import rule_of  # noqa: PLC0415
    from headgate.pipeline.lake.registry import read_registry  # noqa: PLC0415
    from headgate.pipeline.session import spark_session  # noqa: PLC0415

    rules = tuple(rule_of(text) for text in formats)
    if registry is not None:
        read_registry(registry)
    task = job.Lake(records, output, registry, rules, interval, lateness, patience, files)
    with naming("lake", records), spark_session(options, tell) as session:
        if follow is not None:
            queries = job.follow(session, task, follow)
            try:
                session.streams.awaitAnyTermination()
            except KeyboardInterrupt:
                for query in queries:
                    query.stop()
            return
        done = job.catch_up(session, task) if catch_up else job.make(session, task)
        if compact:
            click.echo(f"{job.compact(session, task)} days made one file each", err=True)
    click.echo(
        f"{done.messages} messages in {output}: {done.measurements} measurements, "
        f"{done.quarantined} in quarantine"
    )
