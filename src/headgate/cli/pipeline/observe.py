"""`headgate pipeline observe`"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.pipeline.common import (
    naming,
    spark_options,
    tell,
    with_config,
    with_following,
    with_places,
    with_spark,
    with_window,
)
from headgate.config import Configuration
from headgate.contract.records import MESSAGES
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.pipeline.jobs.damaged import Damaged

LOOK_EVERY = 30
"""Seconds between looks for damaged segments, while following."""


EXAMPLE = """
\b
Examples:
  headgate pipeline observe records metrics                    all that was recorded so far
  headgate pipeline observe records metrics --follow 10s       as it comes, until Ctrl-C
  headgate pipeline observe records metrics --catch-up         go on where it ended, and end
"""


@click.command(epilog=EXAMPLE)
@with_places
@with_config("whose requirements are judged")
@with_window("10s")
@with_following("a record may be", files=200)
@click.option("--exact", is_flag=True, help="Percentiles of all values, not within 1 %; slower.")
@with_spark
def observe(
    records: str,
    output: str,
    config: Configuration,
    window: float,
    lateness: float,
    follow: float | None,
    files: int,
    catch_up: bool,
    exact: bool,
    **spark: Any,
) -> None:
    """Measure what each flow, application, category, topic and link experienced.

    Reads the broker's RECORDS and writes Parquet to OUTPUT (docs/pipeline.md).
    """
    if exact and (catch_up or follow is not None):
        raise ConfigurationError("--exact needs all values at once: not --follow, not --catch-up")
    options = spark_options(spark)
    from headgate.pipeline.jobs import observe as job  # noqa: PLC0415
    from headgate.pipeline.jobs.damaged import Damaged  # noqa: PLC0415
    from headgate.pipeline.session import spark_session  # noqa: PLC0415

    task = job.Observe(records, output, window, lateness, files, exact)
    with naming("observe", records), spark_session(options, tell) as session:
        if follow is None and not catch_up:
            result = job.observe(session, task, config)
            passed_over(result.unreadable)
            click.echo(f"{result.rows} rows of metrics written to {output}")
            return
        damaged = Damaged(session, records, MESSAGES, output)
        query = job.follow(session, task, config, follow)
        try:
            while not query.awaitTermination(LOOK_EVERY):
                name_damaged(damaged)
        except KeyboardInterrupt:
            query.stop()
        name_damaged(damaged)


def name_damaged(damaged: Damaged) -> None:
    """Tell of segments that the stream passed over since the last look, and how many there are."""
    new = damaged.look()
    passed_over(new)
    if new:
        tell(f"{damaged.count} damaged segments so far")


def passed_over(names: Iterable[str]) -> None:
    for name in names:
        tell(f"passed over, because it cannot be read: {name}")
