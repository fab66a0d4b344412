"""`headgate simulate`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.experiments.simulate import SimulationReport

EXAMPLE = """
\b
Examples:
  headgate simulate planemqx                        the paper's workload, built in
  headgate simulate site.yaml --policy plan.yaml    a scenario of one's own (docs/model.md)
  headgate simulate planemqx --by flow --json
  headgate simulate planemqx --plot tails.svg --parquet messages.parquet --records
"""


@click.command(epilog=EXAMPLE)
@click.argument("scenario")
@click.option("--policy", type=click.Path(path_type=Path), help="Policy file, JSON or YAML.")
@click.option(
    "--by",
    type=click.Choice(["category", "application", "flow"]),
    default="category",
    show_default=True,
    help="What one row stands for.",
)
@click.option("--duration", type=float, help="Simulated seconds of each replication.")
@click.option("--warmup", type=float, help="Simulated seconds that do not count.")
@click.option("--replications", default=8, show_default=True, help="Independent runs.")
@click.option("--seed", default=1, show_default=True, help="Same seed, same result.")
@click.option(
    "--workers", type=click.IntRange(1), help="Threads; the result does not depend on it."
)
@click.option("--records", is_flag=True, help="Keep a record of every message (for --parquet).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the tails of the response.")
@click.option("--parquet", type=click.Path(path_type=Path), help="Write Parquet.")
def simulate(
    scenario: str,
    policy: Path | None,
    by: str,
    duration: float | None,
    warmup: float | None,
    replications: int,
    seed: int,
    workers: int | None,
    records: bool,
    as_json: bool,
    plot: Path | None,
    parquet: Path | None,
) -> None:
    """Simulate SCENARIO, a file or a built-in name, and hold the model against it."""
    try:
        from headgate.experiments.simulate import By, simulate_command  # noqa: PLC0415
    except ModuleNotFoundError as error:
        # The broker runs without NumPy and Numba; only this command needs them.
        raise ConfigurationError(
            f"{error.name} is missing: pip install 'headgate[model,plots]'"
        ) from None
    with click.progressbar(length=1000, label="simulating", file=sys.stderr) as bar:

        def progress(fraction: float) -> None:
            bar.update(int(fraction * 1000) - bar.pos)

        report: SimulationReport = simulate_command(
            scenario,
            policy=policy,
            by=By(by),
            duration=duration,
            warmup=warmup,
            replications=replications,
            seed=seed,
            workers=workers,
            records=records,
            progress=progress,
        )
    click.echo(report.to_json() if as_json else report.text())
    try:
        if plot is not None:
            report.plot(plot)
        if parquet is not None:
            report.write_parquet(parquet)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the result cannot be written: {error}") from None
