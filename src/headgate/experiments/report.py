"""What a reproduction found: tables, the papers' claims and whether they hold, plots.

A report is data. It is printed as text, kept as JSON, and written into the documentation as
Markdown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Cell: TypeAlias = str | float | int | None
Tell: TypeAlias = Callable[[str], None]
"""Called before each step of an experiment with what it is: somebody may be waiting."""


def silently(_step: str) -> None:
    """For those who are not."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def text(self) -> str:
        """Aligned columns, for a terminal."""
        cells = [list(self.columns), *[[_shown(cell) for cell in row] for row in self.rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        return "\n".join(
            [self.title, lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
        )

    def markdown(self) -> str:
        lines = [f"| {' | '.join(self.columns)} |", "|" + "---|" * len(self.columns)]
        lines += [f"| {' | '.join(_shown(cell) for cell in row)} |" for row in self.rows]
        return "\n".join([f"**{self.title}**", "", *lines])


@dataclass(frozen=True)
class Claim:
    """Something that a paper says, and what came out here."""

    text: str
    reproduced: bool | None
    """None where what was done here cannot decide it."""
    found: str

    @property
    def verdict(self) -> str:
        if self.reproduced is None:
            return "Open"
        return "Reproduced" if self.reproduced else "**Not reproduced**"

    def markdown(self) -> str:
        return f"- {self.verdict}: {self.text} {self.found}"


@dataclass(frozen=True)
class Report:
    """One experiment."""

    name: str
    title: str
    tables: Sequence[Table]
    claims: Sequence[Claim] = ()
    draw: Callable[[Axes], None] | None = field(default=None, compare=False)

    def text(self) -> str:
        parts = [self.title, *[table.text() for table in self.tables]]
        parts += [
            f"{claim.verdict.strip('*')}: {claim.text} {claim.found}" for claim in self.claims
        ]
        return "\n\n".join(parts)

    def markdown(self, image: str | None = None) -> str:
        parts = [f"### {self.title}"]
        if image is not None:
            parts.append(f"![{self.title}]({image})")
        parts += [table.markdown() for table in self.tables]
        if self.claims:
            parts.append("\n".join(claim.markdown() for claim in self.claims))
        return "\n\n".join(parts)

    def to_json(self) -> str:
        data = {
            "name": self.name,
            "title": self.title,
            "tables": [asdict(table) for table in self.tables],
            "claims": [asdict(claim) for claim in self.claims],
        }
        return json.dumps(data, indent=1)

    def plot(self, path: Path) -> None:
        """Write the figure as an image, of the format that the name's ending says."""
        if self.draw is None:
            raise ConfigurationError(f"{self.name} has nothing to plot")
        figure, axes = _canvas()
        self.draw(axes)
        figure.tight_layout()
        figure.savefig(path, dpi=120)


def _canvas() -> tuple[Figure, Axes]:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - plots are an extra
    except ImportError:
        raise ConfigurationError("plots need matplotlib: pip install 'headgate[plots]'") from None
    figure = Figure(figsize=(7, 4.4))
    return figure, figure.add_subplot()


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        if math.isnan(cell):
            return "–"
        return f"{cell:.4g}" if abs(cell) < 10000 else f"{cell:.0f}"
    return str(cell)
