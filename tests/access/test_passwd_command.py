"""`headgate passwd`: what it tells whoever runs it beside a running broker."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from headgate.cli.passwd import passwd


def test_it_says_when_a_running_broker_takes_up_the_change(tmp_path: Path) -> None:
    users = str(tmp_path / "users.txt")
    run = CliRunner()
    made = run.invoke(passwd, [users, "anna"], input="secret\n")
    assert made.output == f"anna written to {users}; a running broker takes it up at SIGHUP\n"
    gone = run.invoke(passwd, [users, "anna", "--delete"])
    assert gone.output == f"anna removed from {users}; a running broker takes it up at SIGHUP\n"
