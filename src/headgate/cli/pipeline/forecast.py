"""`headgate pipeline forecast`"""

from __future__ import annotations

import json
from typing import Any

import click

from headgate.cli.pipeline.calibrate import percent
from headgate.cli.pipeline.common import naming, spark_options, tell, time, with_result, with_spark
from headgate.errors import ConfigurationError

EXAMPLE = """
\b
Examples:
  headgate pipeline forecast metrics knowledge                          the next hour
  headgate pipeline forecast metrics knowledge --horizon 24h --step 15min --period 24h
"""


@click.command(epilog=EXAMPLE)
@click.argument("metrics")
@click.argument("knowledge")
@click.option("--horizon", type=time, default="1h", show_default=True, help="How far ahead.")
@click.option("--step", type=time, default="5min", show_default=True, help="Of the series.")
@click.option("--period", type=time, help="After which load repeats itself; found if not given.")
@click.option(
    "--topics",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Topics, those that carry most.",
)
@click.option(
    "--history",
    type=click.IntRange(2),
    default=5000,
    show_default=True,
    help="Steps to look back, at most.",
)
@with_result
@with_spark
def forecast(
    metrics: str,
    knowledge: str,
    horizon: float,
    step: float,
    period: float | None,
    topics: int,
    history: int,
    keep: int,
    as_json: bool,
    **spark: Any,
) -> None:
    """Forecast the load of links, categories, applications and topics.

    Reads METRICS, which `observe` wrote, and writes a new version of the forecast to KNOWLEDGE
    (docs/knowledge.md).
    """
    if horizon < step:
        raise ConfigurationError("--horizon must be at least one --step")
    options = spark_options(spark)
    from headgate.pipeline.jobs import forecast as job  # noqa: PLC0415
    from headgate.pipeline.session import spark_session  # noqa: PLC0415

    task = job.Forecast(metrics, knowledge, horizon, step, period, topics, history, keep)
    with naming("forecast", metrics), spark_session(options, tell) as session:
        result = job.forecast(session, task)
    lineage = result.lineage
    if as_json:
        shown = {"version": lineage.version, "back_test": result.errors, "notes": lineage.notes}
        click.echo(json.dumps(shown, indent=2))
        return
    click.echo(
        f"{'of each':<13}{'series':>7}{'baseline':>10}{'regression':>12}{'chosen':>9}"
        f"{'within 90 %':>13}"
    )
    for kind, found in result.errors.items():
        baseline = found.get("seasonal-naive")
        click.echo(
            f"{kind:<13}{found['series'] or 0:>7.0f}"
            f"{percent(found.get('last-value') if baseline is None else baseline):>10}"
            f"{percent(found.get('regression')):>12}{percent(found.get('chosen')):>9}"
            f"{percent(found.get('coverage')):>13}"
        )
    for note in lineage.notes:
        click.echo(note)
    click.echo(f"forecast {lineage.version} written to {knowledge}")
