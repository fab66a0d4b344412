"""`headgate pipeline JOB`: one file for each job."""

from __future__ import annotations

import click

from headgate.cli.pipeline.calibrate import calibrate
from headgate.cli.pipeline.connectivity import connectivity
from headgate.cli.pipeline.forecast import forecast
from headgate.cli.pipeline.lake import lake
from headgate.cli.pipeline.observe import observe
from headgate.cli.pipeline.report import report
from headgate.cli.pipeline.sweep import sweep

EXAMPLE = """
\b
Examples:
  headgate pipeline observe records metrics                    all that was recorded so far
  headgate pipeline observe records metrics --follow 10s       as it comes, until Ctrl-C
  headgate pipeline connectivity records habits --config headgate.yaml
  headgate pipeline sweep planemqx dataset --points 20000
  headgate pipeline calibrate knowledge --records records --config headgate.yaml
  headgate pipeline forecast metrics knowledge --horizon 24h
  headgate pipeline report report.html --metrics metrics --knowledge knowledge
  headgate pipeline lake records lake --registry sensors.yaml
  headgate pipeline observe s3a://b/records s3a://b/metrics --master spark://head:7077
"""


@click.group(epilog=EXAMPLE)
def pipeline() -> None:
    """Spark jobs that make knowledge of what the broker recorded."""


for job in (observe, connectivity, sweep, calibrate, forecast, lake, report):
    pipeline.add_command(job)
