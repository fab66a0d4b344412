"""`python -m headgate.experiments OUT`: reproduce the papers' figures by model and simulator.

Writes each report as JSON and its plot as PNG to OUT, and prints tables and claims. With `--docs
FILE` the reports also replace what stands between the two marks of a Markdown file.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from headgate.errors import ConfigurationError
from headgate.experiments import accuracy, onoff, planemqx
from headgate.experiments.report import Report

BEGIN, END = "<!-- reports: begin -->", "<!-- reports: end -->"


@click.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--images", type=click.Path(file_okay=False, path_type=Path), help="default: OUT")
@click.option("--docs", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(out: Path, images: Path | None, docs: Path | None) -> None:
    """ON/OFF Figs. 4, 6, 7, PlanEMQX Figs. 4, 5, and the model's accuracy; OUT gets the files."""
    images = images or out
    for folder in (out, images):
        folder.mkdir(parents=True, exist_ok=True)
    reports: list[Report] = []
    for report in (*onoff.reports(), *planemqx.reports(), *accuracy.reports()):
        (out / f"{report.name}.json").write_text(report.to_json(), encoding="utf-8")
        if report.draw is not None:
            report.plot(images / f"{report.name}.png")
        click.echo(report.text() + "\n")
        reports.append(report)
    if docs is not None:
        write_into(docs, reports, images)


def write_into(document: Path, reports: list[Report], images: Path) -> None:
    """Put the reports between the marks of a Markdown file."""
    before, begin, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigurationError(f"{document}: the marks {BEGIN} and {END} are missing")
    folder = os.path.relpath(images, document.parent)
    sections = [
        report.markdown(None if report.draw is None else f"{folder}/{report.name}.png")
        for report in reports
    ]
    text = "\n\n".join([before + BEGIN, *sections, END + after])
    document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
