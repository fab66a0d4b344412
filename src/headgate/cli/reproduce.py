"""`headgate reproduce`"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.experiments.report import Report

EXPERIMENTS = {
    "onoff": "ON/OFF Figs. 4, 6 and 7: probabilistic dropping, lifetimes, finite queues",
    "planemqx-model": "PlanEMQX Figs. 4 and 5: response over the link's rate, what the plan does",
    "accuracy": "how far the model's percentiles are from the simulation",
    "onoff-live": "ON/OFF Fig. 4 on a broker process with clients that come and go: 3 minutes",
}
LIVE = {"onoff-live"}
"""Only where they are named: they start a broker, and want a machine with nothing else to do."""

EXAMPLE = (
    """
\b
Experiments (none named: all but the live one, a few minutes):
"""
    + "\n".join(f"  {name:16}{about}" for name, about in EXPERIMENTS.items())
    + """

\b
Examples:
  headgate reproduce
  headgate reproduce onoff --out figures
"""
)


@click.command(epilog=EXAMPLE)
@click.argument(
    "experiments", nargs=-1, type=click.Choice(list(EXPERIMENTS)), metavar="[EXPERIMENT]..."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="reproduced",
    show_default=True,
    help="Folder for tables (JSON) and plots (PNG).",
)
def reproduce(experiments: tuple[str, ...], out: Path) -> None:
    """Repeat the papers' experiments, and say which claims hold."""
    try:
        from headgate.experiments import accuracy, live_onoff, onoff, planemqx  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{error.name} is missing: pip install 'headgate[model,plots]'"
        ) from None
    known: dict[str, Callable[..., Iterable[Report]]] = {
        "onoff": onoff.reports,
        "planemqx-model": planemqx.reports,
        "accuracy": accuracy.reports,
        "onoff-live": live_onoff.reports,
    }
    _make(out)
    chosen = experiments or tuple(name for name in EXPERIMENTS if name not in LIVE)
    for number, name in enumerate(chosen, 1):
        click.echo(f"[{number}/{len(chosen)}] {name}: {EXPERIMENTS[name]}", err=True)
        for report in known[name](tell=_tell):
            _keep(report, out)
            click.echo(report.text() + "\n")
    click.echo(f"written: {out}", err=True)


def _tell(step: str) -> None:
    click.echo(f"  {step}", err=True)


def _make(out: Path) -> None:
    """Before anything is computed that could then not be kept."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{out}: cannot be made: {error.strerror}") from None


def _keep(report: Report, out: Path) -> None:
    try:
        (out / f"{report.name}.json").write_text(report.to_json(), encoding="utf-8")
        if report.draw is not None:
            report.plot(out / f"{report.name}.png")
    except OSError as error:
        raise ConfigurationError(f"{out}: cannot be written: {error.strerror}") from None
