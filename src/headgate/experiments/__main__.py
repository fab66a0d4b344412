"""`python -m headgate.experiments OUT`: reproduce the papers' figures by model and simulator.

Writes each report as JSON and its plot as PNG to OUT, and prints tables and claims.
"""

from __future__ import annotations

from pathlib import Path

import click

from headgate.experiments import onoff, planemqx


@click.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
def main(out: Path) -> None:
    """Reproduce ON/OFF Figs. 4, 6 and 7 and PlanEMQX Figs. 4 and 5; OUT gets JSON and PNG files."""
    out.mkdir(parents=True, exist_ok=True)
    for report in [*onoff.reports(), *planemqx.reports()]:
        (out / f"{report.name}.json").write_text(report.to_json(), encoding="utf-8")
        report.plot(out / f"{report.name}.png")
        click.echo(report.text() + "\n")


if __name__ == "__main__":
    main()
