"""`headgate`: the commands and how they fail."""

from __future__ import annotations

import sys

import click

from headgate import __version__, is_compiled
from headgate.cli.check import check
from headgate.cli.control import control, history
from headgate.cli.passwd import passwd
from headgate.cli.pipeline import pipeline
from headgate.cli.plan import plan, whatif
from headgate.cli.reproduce import reproduce
from headgate.cli.serve import serve
from headgate.cli.simulate import simulate
from headgate.errors import HeadgateError

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=HELP)
@click.version_option(
    __version__,
    message=f"headgate {__version__} ({'compiled' if is_compiled() else 'not compiled: slower'})",
)
def commands() -> None:
    """An MQTT broker in which every subscription has its own priority, drop rate and queue."""


commands.add_command(serve)
commands.add_command(check)
commands.add_command(passwd)
commands.add_command(pipeline)
commands.add_command(simulate)
commands.add_command(reproduce)
commands.add_command(plan)
commands.add_command(whatif)
commands.add_command(control)
commands.add_command(history)


def main() -> None:
    """Run a command; what the user can mend is told in a sentence, never as a traceback."""
    try:
        commands(prog_name="headgate")
    except HeadgateError as error:
        click.echo(f"headgate: {error}", err=True)
        sys.exit(1)
