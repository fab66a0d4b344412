"""`headgate pipeline connectivity`"""

from __future__ import annotations

from typing import Any

import click

from headgate.cli.pipeline.common import (
    naming,
    spark_options,
    tell,
    with_config,
    with_places,
    with_spark,
)
from headgate.config import Configuration

EXAMPLE = """
\b
Examples:
  headgate pipeline connectivity records habits --config headgate.yaml
"""


@click.command(epilog=EXAMPLE)
@with_places
@with_config("whose thresholds (threshold_s) are kept")
@with_spark
def connectivity(records: str, output: str, config: Configuration, **spark: Any) -> None:
    """Estimate how long clients stay and are away, and what to queue meanwhile.

    Reads the broker's RECORDS and writes Parquet to OUTPUT (docs/pipeline.md).
    """
    options = spark_options(spark)
    from headgate.pipeline.jobs import connectivity as job  # noqa: PLC0415
    from headgate.pipeline.session import spark_session  # noqa: PLC0415

    with naming("connectivity", records), spark_session(options, tell) as session:
        rows = job.connectivity(session, records, output, config)
    click.echo(f"{rows} clients written to {output}")
