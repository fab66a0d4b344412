"""`headgate pipeline report`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headgate.cli.pipeline.common import naming, spark_options, tell, with_config, with_spark
from headgate.config import Configuration
from headgate.errors import ConfigurationError

EXAMPLE = """
\b
Examples:
  headgate pipeline report report.html --metrics metrics --config headgate.yaml
  headgate pipeline report report.html --metrics metrics --habits habits --knowledge knowledge
"""


@click.command(epilog=EXAMPLE)
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--metrics", help="Output of observe.")
@click.option("--habits", help="Output of connectivity.")
@click.option("--dataset", help="Output of sweep.")
@click.option("--knowledge", help="Output of calibrate and forecast.")
@click.option("--lake", help="Output of lake.")
@click.option("--title", default="Headgate", show_default=True, help="Of the page.")
@with_config("whose requirements are shown")
@with_spark
def report(
    output: Path,
    metrics: str | None,
    habits: str | None,
    dataset: str | None,
    knowledge: str | None,
    lake: str | None,
    title: str,
    config: Configuration,
    **spark: Any,
) -> None:
    """Show what the other jobs found on one HTML page, OUTPUT.

    The page needs nothing else, not even a network. What is not given is left out, and said.
    """
    if not output.absolute().parent.is_dir():
        raise ConfigurationError(f"{output}: there is no folder {output.absolute().parent}")
    options = spark_options(spark)
    from headgate.pipeline.jobs import report as job  # noqa: PLC0415
    from headgate.pipeline.session import spark_session  # noqa: PLC0415

    task = job.Report(metrics, habits, dataset, knowledge, lake, title)
    with naming("report", str(output)), spark_session(options, tell) as session:
        made = job.report(session, task, config)
    try:
        output.write_text(made.html, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{output}: cannot be written: {error.strerror}") from None
    for line in made.missing:
        click.echo(f"left out {line}", err=True)
    click.echo(f"{len(made.shown)} sections written to {output}")
