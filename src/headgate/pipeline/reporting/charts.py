"""Charts as SVG that takes its colours from the page: readable by day and night, and on a phone.

Small, so that text keeps its size where the page is narrow: a chart is 480 units wide and is
stretched to its column.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 480.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 10.0, 10.0, 24.0
COLOURS = 8
"""That the page has; the ninth is the first again."""

Point = tuple[float, float | None]
"""Where, and how much; None is a gap."""


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[Point]
    colour: int = 0
    dashed: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Band:
    """Between two values at each place."""

    points: Sequence[tuple[float, float, float]]
    colour: int = 0


@dataclass(frozen=True)
class Level:
    """A horizontal line: what is required."""

    name: str
    value: float
    colour: int | None = None


@dataclass(frozen=True)
class Axes:
    """What goes from where to where; x is seconds since the epoch if `times`."""

    x: tuple[float, float]
    y: tuple[float, float]
    times: bool = True
    log_x: bool = False
    log_y: bool = False
    unit_x: str = ""
    unit_y: str = ""

    def at_x(self, value: float) -> float:
        return LEFT + share(value, self.x, self.log_x) * (WIDTH - LEFT - RIGHT)

    def at_y(self, value: float) -> float:
        return HEIGHT - BOTTOM - share(value, self.y, self.log_y) * (HEIGHT - TOP - BOTTOM)


@dataclass
class Chart:
    """A drawing and what its colours mean."""

    title: str
    body: str
    legend: list[tuple[str, int]] = field(default_factory=list)
    note: str = ""

    def html(self) -> str:
        keys = "".join(
            f'<span class="key"><i class="f{colour % COLOURS}"></i>{escape(name)}</span>'
            for name, colour in self.legend
        )
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        label = escape(self.title, quote=True)
        return (
            f'<figure><figcaption>{escape(self.title)}</figcaption><div class="keys">{keys}</div>'
            f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">'
            f"{self.body}</svg>{note}</figure>"
        )


def share(value: float, bounds: tuple[float, float], log: bool) -> float:
    low, high = bounds
    if log:
        value, low, high = (math.log10(max(v, 1e-12)) for v in (value, low, high))
    return 0.5 if high <= low else min(1.0, max(0.0, (value - low) / (high - low)))


def lines(
    title: str,
    series: Sequence[Line],
    *,
    bands: Sequence[Band] = (),
    levels: Sequence[Level] = (),
    unit: str = "",
    log: bool = False,
    note: str = "",
) -> Chart:
    """Values over time."""
    known = [(x, y) for line in series for x, y in line.points if y is not None]
    known += [(x, y) for band in bands for x, low, high in band.points for y in (low, high)]
    if not known:
        return Chart(title, empty())
    values = [y for _, y in known] + [level.value for level in levels]
    axes = Axes(
        (min(x for x, _ in known), max(x for x, _ in known)),
        log_bounds(values) if log else (0.0, nice_top(max(values))),
        log_y=log,
        unit_y=unit,
    )
    parts = [grid(axes), *(shaded(band, axes) for band in bands)]
    parts.extend(drawn(line, axes) for line in series)
    for level in levels:
        y = axes.at_y(level.value)
        colour = "req" if level.colour is None else f"s{level.colour % COLOURS}"
        parts.append(
            f'<line class="{colour} level" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/><text class="{"req" if level.colour is None else "lab"} tag" '
            f'x="{WIDTH - RIGHT - 2:g}" y="{y - 3:.1f}">{escape(level.name)}</text>'
        )
    legend = [(line.name, line.colour) for line in series if line.name]
    return Chart(title, "".join(parts), list(dict.fromkeys(legend)), note)


def shaded(band: Band, axes: Axes) -> str:
    there = [f"{axes.at_x(x):.1f},{axes.at_y(high):.1f}" for x, _, high in band.points]
    back = [f"{axes.at_x(x):.1f},{axes.at_y(low):.1f}" for x, low, _ in band.points[::-1]]
    return f'<polygon class="f{band.colour % COLOURS} band" points="{" ".join(there + back)}"/>'


def drawn(line: Line, axes: Axes) -> str:
    """A path, interrupted where nothing is known; what stands alone is a dot."""
    style = f"s{line.colour % COLOURS} line{' dash' if line.dashed else ''}"
    style += " faint" if line.faint else ""
    pieces: list[list[Point]] = [[]]
    for point in line.points:
        if point[1] is None:
            pieces.append([])
        else:
            pieces[-1].append(point)
    marks = []
    for piece in pieces:
        spots = [(axes.at_x(x), axes.at_y(y)) for x, y in piece if y is not None]
        if len(spots) == 1:
            x, y = spots[0]
            marks.append(
                f'<circle class="f{line.colour % COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="2"/>'
            )
        elif spots:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
            marks.append(f'<path class="{style}" d="M{path}"/>')
    return f"<g><title>{escape(line.name)}</title>{''.join(marks)}</g>"


def stacked(
    title: str,
    starts: Sequence[float],
    width: float,
    parts_of: Sequence[tuple[str, Sequence[float]]],
    unit: str = "",
) -> Chart:
    """Bars over time, each the sum of its parts."""
    totals = [sum(values[i] for _, values in parts_of) for i in range(len(starts))]
    if not totals or max(totals) <= 0:
        return Chart(title, empty("nothing was lost"))
    axes = Axes((min(starts), max(starts) + width), (0.0, nice_top(max(totals))), unit_y=unit)
    bars = [grid(axes)]
    below = [0.0] * len(starts)
    for colour, (name, values) in enumerate(parts_of):
        for i, start in enumerate(starts):
            if values[i] <= 0:
                continue
            x0, x1 = axes.at_x(start), axes.at_x(start + width)
            y1, y0 = axes.at_y(below[i] + values[i]), axes.at_y(below[i])
            bars.append(
                f'<rect class="f{colour % COLOURS}" x="{x0:.1f}" y="{y1:.1f}" '
                f'width="{max(0.8, x1 - x0 - 0.4):.1f}" height="{max(0.3, y0 - y1):.1f}">'
                f"<title>{escape(name)}: {values[i]:g}</title></rect>"
            )
            below[i] += values[i]
    return Chart(title, "".join(bars), [(name, i) for i, (name, _) in enumerate(parts_of)])


def scatter(
    title: str,
    groups: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    unit: str,
    note: str = "",
) -> Chart:
    """What was said over what was measured: right is on the diagonal. Both axes alike, and log."""
    known = [value for _, points in groups for point in points for value in point if value > 0]
    if not known:
        return Chart(title, empty())
    bounds = log_bounds(known)
    axes = Axes(bounds, bounds, times=False, log_x=True, log_y=True, unit_x=unit, unit_y=unit)
    parts = [
        grid(axes),
        f'<line class="diagonal" x1="{axes.at_x(bounds[0]):.1f}" y1="{axes.at_y(bounds[0]):.1f}" '
        f'x2="{axes.at_x(bounds[1]):.1f}" y2="{axes.at_y(bounds[1]):.1f}"/>',
    ]
    for colour, (_, points) in enumerate(groups):
        parts.extend(
            f'<circle class="f{colour} dot" r="2.6" cx="{axes.at_x(x):.1f}" '
            f'cy="{axes.at_y(y):.1f}"/>'
            for x, y in points
            if x > 0 and y > 0
        )
    return Chart(title, "".join(parts), [(name, i) for i, (name, _) in enumerate(groups)], note)


def curves(
    title: str, series: Sequence[Line], bands: Sequence[Band], unit_x: str, unit_y: str
) -> Chart:
    """Values over something that is not time, on a logarithmic scale."""
    known = [(x, y) for line in series for x, y in line.points if y]
    if not known:
        return Chart(title, empty())
    values = [y for _, y in known] + [
        v for b in bands for _, low, high in b.points for v in (low, high)
    ]
    axes = Axes(
        (min(x for x, _ in known), max(x for x, _ in known)),
        log_bounds([v for v in values if v > 0]),
        times=False,
        log_y=True,
        unit_x=unit_x,
        unit_y=unit_y,
    )
    parts = [grid(axes), *(shaded(band, axes) for band in bands)]
    parts.extend(drawn(line, axes) for line in series)
    return Chart(title, "".join(parts), [(line.name, line.colour) for line in series])


def whiskers(
    title: str, rows: Sequence[tuple[str, float, float, float, int]], unit: str, note: str = ""
) -> Chart:
    """Means with their intervals, one below the other: name, low, mean, high, colour."""
    rows = [row for row in rows if row[2] > 0]
    if not rows:
        return Chart(title, empty())
    bounds = log_bounds([v for _, low, mean, high, _ in rows for v in (low, mean, high) if v > 0])
    axes = Axes(bounds, (0, 1), times=False, log_x=True, unit_x=unit)
    left = 120.0

    def at(value: float) -> float:
        return left + share(value, bounds, True) * (WIDTH - left - RIGHT)

    parts = [
        f'<line class="grid" x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="{TOP:g}" '
        f'y2="{HEIGHT - BOTTOM:g}"/><text class="tick mid" x="{at(tick):.1f}" '
        f'y="{HEIGHT - 8:g}">{number(tick)}</text>'
        for tick in ticks(bounds, True)
    ]
    parts.append(f'<text class="tick end" x="{left - 8:g}" y="{HEIGHT - 8:g}">{axes.unit_x}</text>')
    step = (HEIGHT - TOP - BOTTOM) / len(rows)
    for i, (name, low, mean, high, colour) in enumerate(rows):
        y = TOP + step * (i + 0.5)
        parts.append(
            f'<text class="lab end" x="{left - 8:g}" y="{y + 4:.1f}">{escape(shortened(name, 18))}'
            f'</text><line class="s{colour} whisker" x1="{at(low):.1f}" x2="{at(high):.1f}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/><circle class="f{colour}" cx="{at(mean):.1f}" '
            f'cy="{y:.1f}" r="3.4"/>'
        )
    return Chart(title, "".join(parts), note=note)


def grid(axes: Axes) -> str:
    parts = []
    for value in ticks(axes.y, axes.log_y):
        y = axes.at_y(value)
        parts.append(
            f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick end" x="{LEFT - 5:g}" y="{y + 4:.1f}">{number(value)}</text>'
        )
    if axes.unit_y:
        parts.append(
            f'<text class="tick" x="{LEFT + 3:g}" y="{TOP + 8:g}">{escape(axes.unit_y)}</text>'
        )
    marks: Iterable[tuple[float, str]] = (
        time_ticks(*axes.x)
        if axes.times
        else [(value, number(value)) for value in ticks(axes.x, axes.log_x)]
    )
    for value, text in marks:
        x = axes.at_x(value)
        anchor = "mid" if LEFT + 16 < x < WIDTH - RIGHT - 16 else ("" if x < WIDTH / 2 else "end")
        parts.append(
            f'<line class="grid up" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BOTTOM:g}" '
            f'y2="{HEIGHT - BOTTOM + 4:g}"/>'
            f'<text class="tick {anchor}" x="{x:.1f}" y="{HEIGHT - 6:g}">{text}</text>'
        )
    if axes.unit_x:
        parts.append(
            f'<text class="tick end" x="{WIDTH - RIGHT:g}" y="{HEIGHT - BOTTOM - 5:g}">'
            f"{escape(axes.unit_x)}</text>"
        )
    return "".join(parts)


def empty(why: str = "no data") -> str:
    return f'<text class="tick mid" x="{WIDTH / 2:g}" y="{HEIGHT / 2:g}">{escape(why)}</text>'


def nice_top(highest: float) -> float:
    """The next round number."""
    if highest <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(highest))
    return next(
        m * size for m in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if m * size >= highest * 0.999
    )


def log_bounds(values: Iterable[float]) -> tuple[float, float]:
    """A little more than from the lowest to the highest."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = min(known) / 1.15, max(known) * 1.15
    if high / low < 10:
        middle = math.sqrt(low * high)
        low, high = middle / 3.2, middle * 3.2
    return low, high


def ticks(bounds: tuple[float, float], log: bool) -> list[float]:
    low, high = bounds
    if log:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1,) if high / low > 1000 else (1, 3) if high / low > 30 else (1, 2, 5)
        return [m * 10.0**d for d in decades for m in steps if low <= m * 10.0**d <= high]
    size = nice_top((high - low) / 4)
    first = math.ceil(low / size - 1e-9)
    last = math.floor(high / size + 1e-9)
    return [step * size for step in range(first, last + 1)]


STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def time_ticks(first: float, last: float) -> list[tuple[float, str]]:
    """At round times; the day where it begins, or where days are all there is."""
    span = max(last - first, 1e-3)
    step = next((s for s in STEPS if span / s <= 5), 86400.0 * math.ceil(span / 5 / 86400))
    found = []
    at = math.ceil(first / step) * step
    while at <= last:
        moment = datetime.fromtimestamp(at, UTC)
        midnight = at % 86400 == 0
        text = (
            f"{moment:%-d %b}"
            if midnight
            else (f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}")
        )
        found.append((at, text))
        at += step
    return found


def number(value: float) -> str:
    """Short: 1.5k, 20M, 0.3."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def shortened(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def gapped(points: Sequence[tuple[float, float]], width: float) -> list[Point]:
    """Points with a gap wherever some are missing between two."""
    if not points:
        return []
    result: list[Point] = [points[0]]
    for (x0, _), (x1, y1) in pairwise(points):
        if x1 - x0 > 1.5 * width:
            result.append((x0 + width, None))
        result.append((x1, y1))
    return result
