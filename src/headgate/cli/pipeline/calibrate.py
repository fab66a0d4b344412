"""`headgate pipeline calibrate`"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.pipeline.common import (
    naming,
    spark_options,
    tell,
    with_config,
    with_result,
    with_spark,
    with_window,
)
from headgate.config import Configuration
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.pipeline.jobs.calibrate import Calibrated

EXAMPLE = """
\b
Examples:
  headgate pipeline calibrate knowledge --records records --config headgate.yaml
  headgate pipeline calibrate knowledge --dataset dataset --scenario site.yaml
"""


@click.command(epilog=EXAMPLE)
@click.argument("knowledge")
@click.option("--records", help="The broker's records.")
@click.option("--dataset", help="A sweep of the simulator, for links of which nothing is recorded.")
@click.option("--scenario", help="The scenario that was swept; with --dataset.")
@with_config("of the broker: rates of its links, to compare with")
@with_window("1min")
@click.option(
    "--windows",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Of each link, at most; the newest.",
)
@with_result
@with_spark
def calibrate(
    knowledge: str,
    records: str | None,
    dataset: str | None,
    scenario: str | None,
    config: Configuration,
    window: float,
    windows: int,
    keep: int,
    as_json: bool,
    **spark: Any,
) -> None:
    """Fit the performance model to what was recorded and simulated.

    Writes a new version of the calibration to KNOWLEDGE, and says how good it is on data that it
    was not fitted to (docs/knowledge.md).
    """
    if records is None and dataset is None:
        raise ConfigurationError("nothing to calibrate by: give --records, or --dataset")
    if dataset is not None and scenario is None:
        raise ConfigurationError("--dataset needs --scenario: the one that was swept")
    options = spark_options(spark)
    from headgate.experiments.scenarios import load as load_scenario  # noqa: PLC0415
    from headgate.pipeline.jobs import calibrate as job  # noqa: PLC0415
    from headgate.pipeline.session import spark_session  # noqa: PLC0415

    loaded = None if scenario is None else load_scenario(scenario)
    task = job.Calibrate(knowledge, records, dataset, loaded, window, windows, keep)
    with naming("calibrate", records or dataset or ""), spark_session(options, tell) as session:
        result = job.calibrate(session, task, config)
    if as_json:
        click.echo(json.dumps(as_data(result), indent=2))
        return
    for line in told(result):
        click.echo(line)
    click.echo(f"calibration {result.lineage.version} written to {knowledge}")


def as_data(result: Calibrated) -> dict[str, Any]:
    return {
        "version": result.lineage.version,
        "links": [
            {
                name: value if not hasattr(value, "isoformat") else value.isoformat()
                for name, value in row.items()
            }
            for row in result.links
        ],
        "held_out": result.categories,
        "notes": list(result.lineage.notes),
    }


def told(result: Calibrated) -> list[str]:
    """What a person wants to know: each link, and how much better the model is."""
    lines = [
        f"{'link':<16}{'Mbit/s':>9}{'overhead':>10}{'burstiness':>12}{'factor':>8}{'windows':>9}"
        f"{'error':>8}  drift"
    ]
    for row in result.links:
        rate: Any = row["rate"]
        error: Any = row["error"]
        lines.append(
            f"{row['link']!s:<16}{'–' if rate is None else f'{rate / 1e6:.3f}':>9}"
            f"{row['overhead']:>8.1f} B{row['burstiness']:>12.3f}{row['response_factor']:>8.3f}"
            f"{row['samples']:>9}{percent(error):>8}  {'yes' if row['drift'] else 'no'}"
        )
    if result.categories:
        lines.append("")
        lines.append(
            "errors on held-out data    mean: model → calibrated    p99: model → calibrated"
        )
    for name, found in result.categories.items():
        lines.append(
            f"{name or '(no category)':<27}"
            f"{percent(found['mean_model']):>11} → {percent(found['mean_calibrated']):<10}"
            f"{percent(found['p99_model']):>14} → {percent(found['p99_calibrated'])}"
        )
    lines.extend(result.lineage.notes)
    return lines


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
