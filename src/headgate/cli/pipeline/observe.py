"""`headgate pipeline observe`"""

from __future__ import annotations

from typing import Any

import click

from headgate.cli.pipeline.common import naming, spark_options, tell, time, with_config, with_spark
from headgate.config import Configuration


@click.command()
@click.argument("records")
@click.argument("output")
@with_config("whose requirements are judged")
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
    config: Configuration,
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
