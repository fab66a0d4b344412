"""Mistakes of the operator's: where each is, what is wrong, and what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake. Lines and columns count from 1, as editors do; 0 is the file as a whole."""

    line: int
    column: int
    key: str
    """Path of the key, such as `listeners[0].address`; empty for the file as a whole."""
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class InvalidConfigurationError(ConfigurationError):
    """A configuration that cannot be used, with every mistake in it."""

    def __init__(self, source: str, mistakes: Sequence[Mistake]) -> None:
        self.source = source
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: (mistake.line, mistake.column)))
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        return [
            f"{self.source}:{mistake.line}:{mistake.column}: {mistake}"
            if mistake.line
            else f"{self.source}: {mistake}"
            for mistake in self.mistakes
        ]
