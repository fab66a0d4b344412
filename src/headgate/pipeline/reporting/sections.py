"""The sections of the report: small frames in, tables and charts out. No Spark in here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from headgate.contract import Requirement
from headgate.contract.knowledge import Lineage
from headgate.pipeline.reporting import charts
from headgate.pipeline.reporting.charts import Band, Level, Line, gapped
from headgate.pipeline.reporting.gathering import LOST, Habits, Observed
from headgate.pipeline.reporting.page import Section, Table, cell, judged, meter

Needs = Mapping[str, Requirement]
"""What applications require, by name."""


def load(found: Observed) -> Section:
    return Section(
        "Load",
        "What was sent, by link and by category.",
        charts=[
            charts.lines(f"Sent by {what}", over_time(rows, "bits", found.width), unit="bit/s")
            for what, rows in (("link", found.links), ("category", found.categories))
            if not rows.empty
        ],
    )


def response(found: Observed, needs: Needs) -> Section:
    drawings = []
    if not found.categories.empty:
        drawings.append(
            charts.lines(
                "99th percentile by category",
                over_time(found.categories, "p99_ms", found.width),
                unit="ms",
                log=True,
            )
        )
    for name, rows in found.applications.groupby("name"):
        need = needs.get(str(name))
        levels = []
        if need is not None and need.response_ms is not None:
            levels.append(
                Level(f"{need.percentile:g} % within {ms(need.response_ms)}", need.response_ms)
            )
        if need is not None and need.mean_ms is not None:
            levels.append(Level(f"mean {ms(need.mean_ms)}", need.mean_ms))
        series = [
            Line(text, gapped(points(rows, f"{column}_ms"), found.width), colour)
            for text, column, colour in (("p50", "p50", 2), ("p95", "p95", 1), ("p99", "p99", 0))
        ]
        drawings.append(charts.lines(str(name), series, levels=levels, unit="ms", log=True))
    return Section(
        "Response",
        "From arrival at the broker until the kernel has it; dashed red is what is required. "
        "Logarithmic.",
        charts=drawings,
    )


def losses(found: Observed) -> Section:
    reasons = [name for name in LOST if found.lost[name].sum() > 0]
    total = float(found.lost[list(LOST)].to_numpy().sum())
    sent = number_of(found.totals["sent"].iloc[0]) or 0.0
    return Section(
        "Loss",
        f"{total:,.0f} messages did not arrive, of {sent + total:,.0f}.",
        charts=[
            charts.stacked(
                "Lost messages by reason",
                found.lost["bin"].tolist(),
                found.width,
                [(name.removeprefix("dropped_"), found.lost[name].tolist()) for name in reasons],
            )
        ]
        if reasons
        else [],
    )


def attainment(found: Observed, needs: Needs) -> Section:
    rows = []
    for row in found.attained.to_dict("records"):
        count = int(row["judged"])
        part = row["met"] / count if count else None
        good = None if part is None else part >= 0.999
        rows.append(
            (
                cell(row["application"]),
                cell(row["category"] or "–"),
                cell(required(needs.get(row["application"]))),
                meter(part, "–" if part is None else f"{row['met']} of {count}", good),
                cell(percent(row["within"])),
                cell(ms(row["mean_ms"])),
                cell(ms(row["p99_ms"])),
                cell(percent(row["loss"])),
            )
        )
    heads = ("application", "category", "required", "windows met", "in time", "mean", "p99", "loss")
    if not rows:
        return Section("Attainment", "", missing="no application had messages")
    return Section(
        "Attainment", "How often each application got what it requires.", [Table(heads, rows)]
    )


def connectivity(found: Habits) -> Section:
    total = found.totals.iloc[0]
    rows = []
    for row in found.clients.to_dict("records"):
        fits = [
            judged("exponential" if row[key] else "other", bool(row[key]))
            if not missing(row[key])
            else judged("too few", None)
            for key in ("on_exponential", "off_exponential")
        ]
        rows.append(
            (
                cell(row["client"]),
                cell(f"{seconds(row['on_mean_s'])} ({whole(row['on_periods'])})"),
                fits[0],
                cell(f"{seconds(row['off_mean_s'])} ({whole(row['off_periods'])})"),
                fits[1],
                cell("–" if missing(row["join"]) else f"{row['join']:.2f}"),
            )
        )
    whiskers = [
        charts.whiskers(
            title,
            [
                (
                    row["client"],
                    row[f"{state}_low_s"],
                    row[f"{state}_mean_s"],
                    row[f"{state}_high_s"],
                    colour,
                )
                for row in found.clients.to_dict("records")
                if not any(missing(row[f"{state}_{k}_s"]) for k in ("low", "mean", "high"))
            ],
            "s",
            "Mean with its 95 % interval.",
        )
        for title, state, colour in (("Stays connected", "on", 2), ("Is away", "off", 1))
    ]
    return Section(
        "Connectivity",
        f"{int(total['clients'])} clients. Periods are exponential, as the ON/OFF model takes "
        f"them, for {int(total['on_fits'])} of {int(total['on_judged'])} while here and "
        f"{int(total['off_fits'])} of {int(total['off_judged'])} while away.",
        [
            Table(
                ("client", "here (periods)", "fit", "away (periods)", "fit", "ζ"),
                rows,
                "Clients of which most periods were seen.",
            )
        ],
        whiskers,
    )


def sweep(rows: pd.DataFrame) -> Section:
    series, bands = [], []
    for colour, (name, group) in enumerate(rows.groupby("category")):
        series.append(Line(str(name), list(zip(group["load"], group["q50"], strict=True)), colour))
        bands.append(
            Band(list(zip(group["load"], group["q25"], group["q75"], strict=True)), colour)
        )
    total = int(rows.groupby("category")["points"].sum().max())
    return Section(
        "Sweep",
        f"{total:,} simulated situations: mean response over load, under all policies that were "
        "tried. Half of them lie within the band.",
        charts=[charts.curves("Mean response by category", series, bands, "load, ×", "ms")],
    )


def calibration(table: pd.DataFrame, lineage: Lineage, cloud: pd.DataFrame) -> Section:
    links = [
        (
            cell(row["link"]),
            cell("–" if missing(row["rate"]) else f"{row['rate'] / 1e6:.3f} Mbit/s"),
            cell(f"{row['overhead']:.0f} B"),
            cell(f"{row['burstiness']:.2f}"),
            cell(f"{row['response_factor']:.2f}"),
            cell(int(row["samples"])),
            cell(percent(row["error"])),
            judged("drift" if row["drift"] else "steady", not row["drift"]),
        )
        for row in table.to_dict("records")
    ]
    tables = [
        Table(
            ("link", "rate", "overhead", "burstiness", "factor", "windows", "error", "since then"),
            links,
        )
    ]
    errors = [
        (
            cell(name.removeprefix("category ") or "(none)"),
            cell(percent(found["mean_model"])),
            improved(found["mean_model"], found["mean_calibrated"]),
            cell(percent(found["p99_model"])),
            improved(found["p99_model"], found["p99_calibrated"]),
        )
        for name, found in lineage.errors.items()
        if name.startswith("category ")
    ]
    if errors:
        heads = ("category", "mean: model", "calibrated", "p99: model", "calibrated")
        tables.append(Table(heads, errors, "Relative errors on data that nothing was fitted to."))
    drawings = []
    for title, what in (("Mean response", "mean"), ("99th percentile", "p99")):
        groups = [
            (text, pairs(cloud, f"{what}_ms", f"{which}_{what}_ms"))
            for text, which in (("model", "model"), ("calibrated", "calibrated"))
        ]
        if not cloud.empty:
            drawings.append(
                charts.scatter(
                    f"{title}: said over measured", groups, "ms", "On the line is right."
                )
            )
    when = f"Version {lineage.version} of {lineage.created:%-d %B %Y, %H:%M}."
    return Section(
        "Calibration",
        f"{when} The model of each link, fitted to what was measured.",
        tables,
        drawings,
    )


def forecast(ahead: pd.DataFrame, tested: pd.DataFrame, lineage: Lineage) -> Section:
    names = {"last-value": "last value", "seasonal-naive": "seasonal"}
    rows = [
        (
            cell(kind),
            cell(whole(found.get("series"))),
            cell(percent(found.get("seasonal-naive") or found.get("last-value"))),
            cell(percent(found.get("regression"))),
            cell(percent(found.get("chosen"))),
            cell(percent(found.get("coverage"))),
        )
        for kind, found in lineage.errors.items()
    ]
    heads = ("of each", "series", "baseline", "regression", "chosen", "within the interval")
    drawings = []
    for link, group in ahead.groupby("link"):
        own = tested[tested["link"] == link]
        chosen = own[own["chosen"]]
        step = float((group["end"] - group["start"]).dt.total_seconds().iloc[0])
        came = own.drop_duplicates("start").sort_values("start").dropna(subset="measured")
        model = str(group["model"].iloc[0])
        error = group["error"].iloc[0]
        series = [
            Line("measured", gapped(dated(came, "measured"), step), 6),
            *(
                Line("back-test", dated(one.sort_values("start"), "bits"), 1, dashed=True)
                for _, one in chosen.groupby("origin")
            ),
            Line("forecast", dated(group, "bits"), 0),
        ]
        band = list(zip(stamps(group["start"]), group["low"], group["high"], strict=True))
        drawings.append(
            charts.lines(
                f"Link {link}",
                series,
                bands=[Band(band, 0)],
                unit="bit/s",
                note=f"By {names.get(model, model)}; back-test error {percent(error)}. "
                "The band is to hold 90 %.",
            )
        )
    first, last = ahead["start"].min(), ahead["end"].max()
    about = f"Version {lineage.version}: load from {first:%-d %B, %H:%M} to {last:%-d %B, %H:%M}."
    about += "".join(f" {note}." for note in lineage.notes)
    return Section("Forecast", about, [Table(heads, rows)], drawings)


def sensors(counts: Mapping[str, float], late: pd.DataFrame, gaps: pd.DataFrame) -> Section:
    def named(row: Mapping[Any, Any]) -> str:
        sensor = row["sensor"]
        topic = f"{row['topic']} {row['name'] or ''}".strip()
        return topic if missing(sensor) or not sensor else f"{sensor} ({topic})"

    tables = []
    if not late.empty:
        tables.append(
            Table(
                ("late sensor", "place", "silent for", "usually every", "last value"),
                [
                    (
                        cell(named(row)),
                        cell(row["place"] or "–"),
                        cell(seconds(row["silent_s"])),
                        cell(seconds(row["period_s"])),
                        cell(
                            "–"
                            if missing(row["last_time"])
                            else f"{row['last_time']:%-d %b, %H:%M:%S}"
                        ),
                    )
                    for row in late.to_dict("records")
                ],
            )
        )
    if not gaps.empty:
        tables.append(
            Table(
                ("longest gaps", "place", "from", "length", "values missed"),
                [
                    (
                        cell(named(row)),
                        cell(row["place"] or "–"),
                        cell(f"{row['start']:%-d %b, %H:%M:%S}"),
                        cell(seconds(row["seconds"])),
                        cell(whole(row["missed"])),
                    )
                    for row in gaps.to_dict("records")
                ],
            )
        )
    return Section(
        "Sensors",
        f"{counts['sensors']:,.0f} sensors, {counts['late']:,.0f} of them late; "
        f"{counts['gaps']:,.0f} gaps.",
        tables,
    )


# Words and numbers


def over_time(rows: pd.DataFrame, column: str, width: float) -> list[Line]:
    return [
        Line(str(name), gapped(points(group, column), width), colour)
        for colour, (name, group) in enumerate(rows.groupby("name"))
    ]


def points(rows: pd.DataFrame, column: str) -> list[tuple[float, float]]:
    known = rows[rows[column].notna()]
    return list(zip(known["bin"].astype(float), known[column].astype(float), strict=True))


def stamps(times: pd.Series) -> list[float]:
    """Spark's times are UTC without saying so."""
    return [one.timestamp() for one in times.dt.tz_localize("UTC")]


def dated(rows: pd.DataFrame, column: str) -> list[tuple[float, float]]:
    return list(zip(stamps(rows["start"]), rows[column].astype(float), strict=True))


def pairs(rows: pd.DataFrame, measured: str, said: str) -> list[tuple[float, float]]:
    known = rows.dropna(subset=[measured, said])
    return list(zip(known[measured].astype(float), known[said].astype(float), strict=True))


def improved(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return cell(percent(after))
    return judged(percent(after), after <= before)


def required(need: Requirement | None) -> str:
    if need is None:
        return "–"
    parts: list[str] = []
    if need.response_ms is not None:
        parts.append(f"{need.percentile:g} % in {ms(need.response_ms)}")
    if need.mean_ms is not None:
        parts.append(f"mean {ms(need.mean_ms)}")
    parts.append("no loss" if need.loss == 0 else f"loss {percent(need.loss)}")
    if need.throughput is not None:
        parts.append(f"{need.throughput:g}/s")
    return ", ".join(parts)


def missing(value: Any) -> bool:
    return value is None or bool(pd.isna(value))


def number_of(value: Any) -> float | None:
    return None if missing(value) else float(value)


def percent(value: Any) -> str:
    if missing(value):
        return "–"
    share = 100 * float(value)
    return f"{share:.2f} %" if 0 < share < 1 else f"{share:.1f} %"


def ms(value: Any) -> str:
    if missing(value):
        return "–"
    return f"{value / 1e3:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def seconds(value: Any) -> str:
    if missing(value) or not math.isfinite(value):
        return "–"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{1e3 * value:.3g} ms"


def whole(value: Any) -> str:
    return "–" if missing(value) else f"{float(value):,.0f}"


def listed(names: Iterable[str]) -> str:
    return ", ".join(names)
