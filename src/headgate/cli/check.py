"""`headgate check`"""

from __future__ import annotations

from pathlib import Path

import click

from headgate.access import examine
from headgate.config import InvalidConfigurationError, draft, remarks, summarise
from headgate.errors import ConfigurationError
from headgate.server.factories import examine_factories
from headgate.server.transport.tls_context import examine_tls

EXAMPLE = """
\b
Example:
  headgate check headgate.yaml
"""


@click.command(epilog=EXAMPLE)
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Validate a configuration file.

    Every mistake is named with its line, its key and what would be right; so is what is wrong in
    the files that it names, and what it names that is not there.
    """
    found = draft(file)
    config = found.configuration
    flaws: list[ConfigurationError] = []
    if found.mistakes:
        flaws.append(InvalidConfigurationError(found.source, found.mistakes))
    flaws += [*examine(config), *examine_tls(config), *examine_factories(config)]
    if flaws:
        raise ConfigurationError("\n".join(map(str, flaws)))
    click.echo(f"{file}: ok: {summarise(config)}")
    for remark in remarks(config):
        click.echo(f"{file}: note: {remark}")
