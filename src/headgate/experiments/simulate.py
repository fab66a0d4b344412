"""`headgate simulate SCENARIO`: simulate a scenario, hold the model against it, show and keep both.

report = simulate_command("planemqx", policy="plan.yaml", progress=bar)
click.echo(report.text()); report.plot(path); report.write_parquet(path)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.errors import ConfigurationError
from headgate.experiments.report import Cell, Report, Table
from headgate.experiments.scenarios import load, load_policy
from headgate.model import Model, Prediction
from headgate.model.simulation import Group, Outcome
from headgate.model.simulation.layout import OCTAVES, SMALLEST_OCTAVE
from headgate.model.simulation.of_scenario import ScenarioMeasurement, simulate_scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSSES = {
    "by drop rate": (Outcome.THINNED,),
    "while away": (Outcome.REFUSED,),
    "queue full": (Outcome.OVERFLOW, Outcome.OVERFLOW_OFF),
    "expired": (Outcome.EXPIRED,),
}


class By(StrEnum):
    """What one row of the result stands for."""

    FLOW = "flow"
    APPLICATION = "application"
    CATEGORY = "category"


@dataclass(frozen=True)
class Row:
    """One flow, application or category: simulated, with 95 % half-widths, and predicted."""

    name: str
    published_per_s: float
    delivered_per_s: float
    loss: float
    loss_half_width: float
    lost: dict[str, float]
    mean_ms: float
    mean_half_width_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    predicted_mean_ms: float
    predicted_p95_ms: float | None
    """Of a single flow only: percentiles of different flows do not average."""
    predicted_p99_ms: float | None
    predicted_loss: float


@dataclass(frozen=True)
class SimulationReport:
    """The answer of `headgate simulate`."""

    scenario: str
    by: By
    rows: Sequence[Row]
    groups: Sequence[Group]
    measured: ScenarioMeasurement
    prediction: Prediction
    seed: int

    def text(self) -> str:
        """A table for the terminal, and what the model left out."""
        run = self.measured.measurement
        table = Table(
            f"{self.scenario}: {len(run.replications)} × {run.duration:g} s, seed {self.seed}; "
            f"{run.events / 1e6:.1f} M events in {run.wall_time:.2f} s",
            ["", "msg/s", "loss %", "mean ms", "p50", "p95", "p99", "model: mean", "p95", "p99"],
            [_cells(row) for row in self.rows],
        )
        notes = [f"model: {note}" for note in self.prediction.assumptions]
        waiting = sum(replication.on_their_way for replication in run.replications)
        if not self.prediction.stable.all():
            notes.append(
                f"a queue is overloaded ({waiting} messages were still on their way at the end): "
                "simulated responses grow with the simulated time"
            )
        return "\n".join([table.text(), *notes])

    def to_json(self) -> str:
        run = self.measured.measurement
        return json.dumps(
            {
                "scenario": self.scenario,
                "seed": self.seed,
                "replications": len(run.replications),
                "seconds": run.duration,
                "events": run.events,
                "by": str(self.by),
                "rows": [_without_infinities(asdict(row)) for row in self.rows],
                "assumptions": self.prediction.assumptions,
                "links": {
                    link.name: float(load)
                    for link, load in zip(
                        self.measured.table.scenario.links, self.prediction.utilisation, strict=True
                    )
                },
            },
            indent=1,
            allow_nan=False,
            default=float,
        )

    def write_parquet(self, path: str | Path) -> None:
        """One row per message where records were kept, otherwise one per row of the table."""
        try:
            pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        except ImportError:
            raise ConfigurationError("Parquet output needs pyarrow: pip install pyarrow") from None
        columns = self._record_columns() or self._row_columns()
        parquet.write_table(pa.table(columns), path, compression="zstd")

    def plot(self, path: str | Path) -> None:
        """Tails of the response time, simulated, with the model's mean and percentiles."""
        Report("simulation", self.scenario, [], draw=self._draw).plot(Path(path))

    def _record_columns(self) -> dict[str, Any] | None:
        replications = self.measured.measurement.replications
        if replications[0].records is None:
            return None
        kept = [run.records for run in replications if run.records is not None]
        records = np.concatenate(kept)
        flows = self.measured.table.flows
        flow = self.measured.flow_of[records["stream"]]
        names = {outcome.value: outcome.name.lower() for outcome in Outcome}
        return {
            "replication": np.repeat(np.arange(len(kept)), [len(run) for run in kept]),
            "client": np.array([f.client for f in flows])[flow],
            "filter": np.array([f.filter for f in flows])[flow],
            "published_s": records["created"],
            "left_s": records["left"],
            "bytes": records["size"],
            "outcome": np.array([names[i] for i in range(len(names))])[records["outcome"]],
        }

    def _row_columns(self) -> dict[str, Any]:
        flat = [{**asdict(row), **_prefixed(row.lost)} for row in self.rows]
        return {key: [row[key] for row in flat] for key in flat[0] if key != "lost"}

    def _draw(self, axes: Axes) -> None:
        # More curves than colours tell nothing: the busiest ten.
        order = sorted(range(len(self.rows)), key=lambda i: -self.rows[i].delivered_per_s)[:10]
        for number, i in enumerate(sorted(order)):
            row, counts = self.rows[i], self.groups[i].histograms.sum(axis=0)
            if not counts.any():
                continue
            edges = _edges(len(counts))
            tail = 1 - np.cumsum(counts) / counts.sum()
            shown = (tail > 0) & (tail < 1)
            axes.plot(1000 * edges[shown], tail[shown], color=f"C{number}", label=row.name)
            for p, value in ((0.05, row.predicted_p95_ms), (0.01, row.predicted_p99_ms)):
                if value is not None and np.isfinite(value):
                    axes.plot(value, p, "x", color=f"C{number}")
            if np.isfinite(row.predicted_mean_ms):
                axes.axvline(row.predicted_mean_ms, color=f"C{number}", lw=0.7, ls=":")
        axes.set(
            xscale="log",
            yscale="log",
            ylim=(1e-4, 1.1),
            xlabel="response time (ms); dotted: mean by the model, ×: its p95 and p99",
            ylabel="messages that take longer",
            title=self.scenario,
        )
        axes.legend(fontsize="small")


def simulate_command(
    source: str | Path,
    *,
    policy: str | Path | None = None,
    by: By = By.CATEGORY,
    duration: float | None = None,
    warmup: float | None = None,
    replications: int = 8,
    seed: int = 1,
    workers: int | None = None,
    records: bool = False,
    progress: Callable[[float], None] | None = None,
) -> SimulationReport:
    """Load, simulate, predict. `source` is a file or a built-in scenario's name."""
    scenario = load(source)
    rules = scenario.policy if policy is None else load_policy(policy).rules
    if duration is not None and warmup is None:
        warmup = min(scenario.warmup, duration / 5)
    measured = simulate_scenario(
        scenario,
        rules,
        duration=duration,
        warmup=warmup,
        replications=replications,
        seed=seed,
        workers=workers,
        records=records,
        progress=progress,
    )
    model = Model(scenario)
    prediction = model.predict(rules)
    names, groups = [], []
    for name, flows in _grouped(model, by):
        names.append(name)
        groups.append((flows, measured.flows(flows)))
    rows = [
        _row(name, flows, group, model, prediction)
        for name, (flows, group) in zip(names, groups, strict=True)
    ]
    return SimulationReport(
        scenario.name, by, rows, [group for _, group in groups], measured, prediction, seed
    )


def _grouped(model: Model, by: By) -> list[tuple[str, list[int]]]:
    flows = model.table.flows
    if by is By.FLOW:
        return [(flow.name, [number]) for number, flow in enumerate(flows)]
    groups: dict[str, list[int]] = {}
    for number, flow in enumerate(flows):
        key = flow.application if by is By.APPLICATION else flow.category
        groups.setdefault(key or "-", []).append(number)
    return list(groups.items())


def _row(
    name: str, flows: Sequence[int], group: Group, model: Model, prediction: Prediction
) -> Row:
    offered = float(model.offered[list(flows)].sum())
    only = flows[0] if len(flows) == 1 else None
    percentiles = {
        p: None if only is None else 1000 * float(prediction.percentiles[p][only])
        for p in (95.0, 99.0)
    }
    mean, loss = group.mean, group.loss
    return Row(
        name=name,
        published_per_s=group.offered / group.seconds,
        delivered_per_s=group.throughput,
        loss=loss.value,
        loss_half_width=loss.half_width,
        lost={
            reason: sum(group.fraction(outcome) for outcome in outcomes)
            for reason, outcomes in LOSSES.items()
        },
        mean_ms=1000 * mean.value,
        mean_half_width_ms=1000 * mean.half_width,
        p50_ms=1000 * group.percentile(50).value,
        p95_ms=1000 * group.percentile(95).value,
        p99_ms=1000 * group.percentile(99).value,
        predicted_mean_ms=1000 * prediction.group_mean(flows),
        predicted_p95_ms=percentiles[95.0],
        predicted_p99_ms=percentiles[99.0],
        predicted_loss=1 - float(prediction.throughput[list(flows)].sum()) / max(offered, 1e-300),
    )


def _cells(row: Row) -> list[Cell]:
    return [
        row.name,
        row.delivered_per_s,
        f"{100 * row.loss:.2f}",
        f"{row.mean_ms:.2f} ± {row.mean_half_width_ms:.2f}",
        row.p50_ms,
        row.p95_ms,
        row.p99_ms,
        row.predicted_mean_ms,
        row.predicted_p95_ms,
        row.predicted_p99_ms,
    ]


def _without_infinities(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: what never ends, and what nobody measured, is null."""
    return {
        key: None if isinstance(value, float) and not np.isfinite(value) else value
        for key, value in row.items()
    }


def _prefixed(lost: dict[str, float]) -> dict[str, float]:
    return {f"lost_{reason.replace(' ', '_')}": value for reason, value in lost.items()}


def _edges(buckets: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Upper edges of the histogram's buckets, in seconds."""
    sub = buckets // OCTAVES
    octave, part = np.divmod(np.arange(buckets), sub)
    return np.asarray(2.0 ** (octave + SMALLEST_OCTAVE) * (1 + (part + 1) / sub))
