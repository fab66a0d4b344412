"""`headgate pipeline sweep`"""

from __future__ import annotations

import math
import sys
from typing import Any

import click

from headgate.cli.pipeline.common import naming, spark_options, tell, time, with_spark
from headgate.errors import ConfigurationError


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


EXAMPLE = """
\b
Examples:
  headgate pipeline sweep planemqx dataset --points 20000
  headgate pipeline sweep site.yaml dataset --load 0.5..2 --rate 0.8..1.2 --drop 0..0.2
  headgate pipeline sweep site.yaml dataset --grid 5 --levels 2 --drop 0..0
"""


@click.command(epilog=EXAMPLE)
@click.argument("scenario")
@click.argument("output")
@click.option("--points", default=1000, show_default=True, help="Situations to simulate.")
@click.option(
    "--grid",
    type=click.IntRange(1),
    metavar="STEPS",
    help="All combinations of so many values of each range, instead of --points.",
)
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
    grid: int | None,
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
    task = job.Sweep(output, space, points, seed, duration, warmup, grid)
    loaded = load_scenario(scenario)
    points = len(job.wanted_by(task, loaded))
    with (
        naming("sweep", scenario),
        spark_session(options, tell) as session,
        click.progressbar(length=points, label="simulating", file=sys.stderr) as bar,
    ):
        done = job.sweep(session, task, loaded, bar.update)
    click.echo(f"{done} points simulated, {points} are in {output}")
