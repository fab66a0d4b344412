"""The page around the sections: one file, no network, light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape

from headgate import __version__
from headgate.pipeline.reporting.charts import Chart

LIGHT = ("#2f6fde", "#d9730d", "#0f9d76", "#b5439b", "#6c5ce0", "#c2410c", "#0e8fb0", "#8a7000")
DARK = ("#6ea4ff", "#ffab57", "#43d0a2", "#ec86d2", "#a99bff", "#ff8d63", "#4fc8e6", "#d7bd4a")


@dataclass(frozen=True)
class Tile:
    """A number that one looks for first."""

    value: str
    what: str
    good: bool | None = None
    """Whether it is as it should be; None if nobody said how that is."""


@dataclass(frozen=True)
class Table:
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    """HTML of each cell; `cell` makes it of text."""
    note: str = ""

    def html(self) -> str:
        heads = "".join(f"<th>{escape(head)}</th>" for head in self.heads)
        rows = "".join(
            "<tr>" + "".join(f"<td>{value}</td>" for value in row) + "</tr>" for row in self.rows
        )
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return (
            f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>{note}"
        )


@dataclass
class Section:
    name: str
    about: str
    tables: list[Table] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    missing: str = ""
    """Why there is nothing, in a line."""

    @property
    def anchor(self) -> str:
        return self.name.lower().replace(" ", "-")

    def html(self) -> str:
        if self.missing:
            return ""
        tables = "".join(table.html() for table in self.tables)
        charts = "".join(chart.html() for chart in self.charts)
        return (
            f'<section id="{self.anchor}"><h2>{escape(self.name)}</h2>'
            f'<p class="about">{escape(self.about)}</p>{tables}'
            f'<div class="charts">{charts}</div></section>'
        )


def cell(text: object) -> str:
    return escape(str(text))


def judged(text: str, good: bool | None) -> str:
    """A word with a colour, and a sign for who does not see it."""
    if good is None:
        return f'<span class="quiet">{escape(text)}</span>'
    return f'<span class="{"good" if good else "bad"}">{"✓" if good else "✗"} {escape(text)}</span>'


def meter(part: float | None, text: str, good: bool | None = None) -> str:
    """A share as a bar, with the number."""
    if part is None:
        return '<span class="quiet">–</span>'
    colour = "quiet" if good is None else ("good" if good else "bad")
    width = 100 * min(1.0, max(0.0, part))
    return (
        f'<span class="meter {colour}"><span><i style="width:{width:.1f}%"></i></span>'
        f"{escape(text)}</span>"
    )


def page(title: str, subtitle: str, tiles: Sequence[Tile], sections: Sequence[Section]) -> str:
    there = [section for section in sections if not section.missing]
    links = "".join(f'<a href="#{one.anchor}">{escape(one.name)}</a>' for one in there)
    missing = "".join(
        f"<li><b>{escape(one.name)}</b>: {escape(one.missing)}</li>"
        for one in sections
        if one.missing
    )
    absent = f'<section class="absent"><h2>Not on this page</h2><ul>{missing}</ul></section>'
    boxes = "".join(
        f'<div class="tile{"" if t.good is None else " good" if t.good else " bad"}">'
        f"<b>{escape(t.value)}</b><span>{escape(t.what)}</span></div>"
        for t in tiles
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style()}</style></head><body><header>"
        f"<h1>{escape(title)}</h1><p>{escape(subtitle)}</p><nav>{links}</nav></header><main>"
        f'<div class="tiles">{boxes}</div>{"".join(one.html() for one in there)}'
        f"{absent if missing else ''}</main><footer>Headgate {escape(__version__)}. "
        "Times are UTC.</footer></body></html>\n"
    )


def style() -> str:
    def colours(values: Sequence[str]) -> str:
        return "".join(f"--c{i}:{value};" for i, value in enumerate(values))

    marks = "".join(
        f".s{i}{{stroke:var(--c{i})}}.f{i}{{fill:var(--c{i});background:var(--c{i})}}"
        for i in range(len(LIGHT))
    )
    light = (
        "--paper:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5c6878;--rule:#e3e7ed;"
        "--good:#0b7a4b;--bad:#c22f2f;--meter:#e3e7ed;" + colours(LIGHT)
    )
    dark = (
        "--paper:#11151b;--card:#1a2029;--ink:#e8ecf2;--soft:#98a4b5;--rule:#2b3441;"
        "--good:#4fd39a;--bad:#ff7b7b;--meter:#2b3441;" + colours(DARK)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{CSS}{marks}"
    )


CSS = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
 font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
header,main,footer{max-width:1120px;margin:0 auto;padding:0 20px}
header{padding-top:32px}
h1{font-size:1.9rem;line-height:1.2;margin:0;letter-spacing:-.02em}
header p{color:var(--soft);margin:4px 0 14px}
nav{display:flex;flex-wrap:wrap;gap:6px 16px;font-size:.92rem}
nav a{color:var(--c0);text-decoration:none}
nav a:hover{text-decoration:underline}
h2{font-size:1.25rem;margin:0 0 2px;letter-spacing:-.01em}
.about{color:var(--soft);margin:0 0 14px;max-width:75ch}
section{margin:36px 0 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-top:20px}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:12px 16px}
.tile b{display:block;font-size:1.55rem;line-height:1.2;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:.88rem}
.tile.good b{color:var(--good)}
.tile.bad b{color:var(--bad)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:14px}
figure{background:var(--card);border:1px solid var(--rule);border-radius:12px;
 margin:0;padding:14px 16px 10px;min-width:0}
figcaption{font-weight:600}
.keys{display:flex;flex-wrap:wrap;gap:2px 14px;min-height:1.4em;font-size:.85rem;color:var(--soft)}
.key{display:inline-flex;align-items:center;gap:6px}
.key i{width:11px;height:11px;border-radius:3px;display:inline-block}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--soft);
 font-variant-numeric:tabular-nums}
svg .lab{fill:var(--ink)}
svg .end,svg .tag{text-anchor:end}
svg .mid{text-anchor:middle}
.grid{stroke:var(--rule);stroke-width:1}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.dash{stroke-dasharray:5 4}
.faint{opacity:.55;stroke-width:1.3}
.band{opacity:.18}
.level{stroke-dasharray:2 4;stroke-width:1.5}
line.req{stroke:var(--bad)}
text.req{fill:var(--bad);font-weight:600}
text.tag{paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}
.diagonal{stroke:var(--soft);stroke-dasharray:4 4}
.dot{opacity:.55}
.whisker{stroke-width:2;opacity:.6}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:12px;
 margin-bottom:14px}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
th,td{padding:8px 14px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}
tbody tr:last-child td{border-bottom:0}
th{color:var(--soft);font-weight:500;font-size:.85rem}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--card)}
.note{color:var(--soft);font-size:.85rem;margin:2px 0 8px}
.good{color:var(--good)}
.bad{color:var(--bad)}
.quiet{color:var(--soft)}
.meter{display:inline-flex;align-items:center;gap:8px;justify-content:flex-end}
.meter>span{width:64px;height:7px;border-radius:4px;background:var(--meter);overflow:hidden}
.meter i{display:block;height:100%;border-radius:4px;background:currentColor}
.absent ul{color:var(--soft);padding-left:20px;margin:6px 0}
footer{color:var(--soft);font-size:.85rem;padding:36px 20px 40px}
@media(max-width:560px){
 header,main,footer{padding-left:12px;padding-right:12px}
 h1{font-size:1.5rem}
 figure{padding:12px 10px 8px}
 svg text{font-size:15px}
 th,td{padding:8px 10px}
 .tiles{grid-template-columns:1fr 1fr;gap:8px}
 .tile{padding:10px 12px}
 .tile b{font-size:1.25rem}
}
@media print{figure,.tile,.scroll{break-inside:avoid}nav{display:none}}
"""


def moment(when: datetime | None) -> str:
    return "–" if when is None else f"{when:%-d %B %Y, %H:%M}"
