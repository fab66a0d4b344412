"""`headgate passwd`"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headgate.access import delete_user, set_password
from headgate.errors import ConfigurationError

EXAMPLE = """
\b
Examples:
  headgate passwd users.txt anna                    asks for the password
  headgate passwd users.txt ops --roles admin       may reach $CONTROL/#
  echo secret | headgate passwd users.txt sensor-7  takes it from standard input
  headgate passwd users.txt anna --delete
"""

TAKEN_UP = "a running broker takes it up at SIGHUP"


@click.command(epilog=EXAMPLE)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("user")
@click.option("--roles", default=None, help="Comma-separated roles; `admin` may steer the broker.")
@click.option("--delete", is_flag=True, help="Remove the user.")
def passwd(file: Path, user: str, roles: str | None, delete: bool) -> None:
    """Set a user's password in FILE, which is made if it does not exist."""
    if delete:
        if not delete_user(file, user):
            raise ConfigurationError(f"{file} has no user {user!r}")
        click.echo(f"{user} removed from {file}; {TAKEN_UP}")
        return
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise ConfigurationError("the password is empty")
    names = None if roles is None else frozenset(r.strip() for r in roles.split(",") if r.strip())
    set_password(file, user, password, roles=names)
    click.echo(f"{user} written to {file}; {TAKEN_UP}")
