"""`headgate check`"""

from __future__ import annotations

from pathlib import Path

import click

from headgate.access import examine
from headgate.config import load, remarks, summarise

EXAMPLE = """
\b
Example:
  headgate check headgate.yaml
"""


@click.command(epilog=EXAMPLE)
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Validate a configuration file.

    Every mistake is named with its line, its key and what would be right.
    """
    config = load(file)
    examine(config)
    click.echo(f"{file}: ok: {summarise(config)}")
    for remark in remarks(config):
        click.echo(f"{file}: note: {remark}")
