"""The command line: the only place that puts the parts together."""

from headgate.cli.main import main

__all__ = ["main"]
