"""Scenario files, the simulate command's report, and the reproductions, each at small effort."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import gammaincinv

from headgate.cli.reproduce import reproduce
from headgate.errors import ConfigurationError
from headgate.experiments import onoff, planemqx, scenarios
from headgate.experiments.simulate import By, simulate_command
from headgate.model.gamma import FEW, gamma_quantile

YAML = """
topics:
  smoke: {rate: 2, size: 1KiB, sizes: exponential}
  heat: {rate: 1, arrivals: periodic, jitter: 0.2}
  door: {arrivals: trace, times: [1.5, 2, 9]}
clients:
  desk: {subscriptions: ["#"]}
  mobile: {subscriptions: smoke, connectivity: {on: 2min, off: 30s, drain: 50}}
links:
  - {name: floor, clients: ["*"], rate: 1Mbit}
input: {rate: 500}
stages:
  - {name: radio, time: 5ms, clients: mobile}
policy:
  - {topic: smoke, priority: 0, lifetime: 10s}
duration: 200s
warmup: 20s
"""


def test_a_scenario_file_in_yaml_and_json(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(YAML)
    scenario = scenarios.load(path)
    assert [topic.size for topic in scenario.topics] == [1024, 100, 100]
    assert scenario.links[0].rate == 1_000_000
    assert scenario.stages[0].time == pytest.approx(0.005)
    as_json = tmp_path / "b.json"
    as_json.write_text('{"topics": {"t": {"rate": 1}}, "clients": {"c": {"subscriptions": "t"}}}')
    assert scenarios.load(as_json).topics[0].rate == 1.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topics: {t: {rate: 1}}", "clients"),
        ("topics: {t: {rte: 1}}\nclients: {}", "rte"),
        ("topics: {t: {}}\nclients: {}", "messages per second"),
        ("topics: {t: {rate: 1, arrivals: bursts}}\nclients: {}", "bursts need"),
        ("topics: {t: {arrivals: trace, times: [3, 1]}}\nclients: {}", "ascending"),
        ("topics: {}\nclients: {}\nduration: 5s", "warmup"),
        ("topics: {}\nclients: {c: {subscriptions: t, application: x}}", "no application"),
        ("topics: [", "not YAML"),
    ],
)
def test_mistakes_in_a_scenario_are_named(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        scenarios.parse(text)


def test_an_unknown_scenario_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="onoff, planemqx"):
        scenarios.load("planemq")


def test_the_built_in_workload_is_the_papers() -> None:
    scenario = scenarios.load("planemqx")
    assert len(scenario.topics) == 30
    assert len(scenario.clients) == 16
    published = dict.fromkeys(("AN", "RT", "TS", "ST"), 0.0)
    rate = {topic.name: topic.mean_rate for topic in scenario.topics}
    category = {a.name: a.category for a in scenario.applications}
    for client in scenario.clients:
        for topic in client.subscriptions:
            published[category[client.name] or ""] += 300 * rate[topic]
    # Table II, "Published".
    assert published == {"AN": 32100, "RT": 33300, "TS": 28500, "ST": 30000}


def test_simulate_reports_in_every_form(tmp_path: Path) -> None:
    scenario, policy = tmp_path / "s.yaml", tmp_path / "p.yaml"
    scenario.write_text(YAML)
    policy.write_text("- {drop: 0.25}\n")
    told: list[float] = []
    report = simulate_command(
        scenario, policy=policy, by=By.FLOW, replications=2, records=True, progress=told.append
    )
    assert [row.name for row in report.rows] == ["desk:#", "mobile:smoke"]
    for row in report.rows:
        assert row.loss == pytest.approx(row.predicted_loss, abs=0.1)
        assert sum(row.lost.values()) == pytest.approx(row.loss)
    assert "arrivals are taken as Poisson" in report.text()
    assert told[-1] == 1.0
    data = json.loads(report.to_json())
    assert data["rows"][0]["name"] == "desk:#"
    assert data["links"]["floor"] == pytest.approx(float(report.prediction.utilisation[0]))
    report.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000
    parquet = pytest.importorskip("pyarrow.parquet")
    report.write_parquet(tmp_path / "messages.parquet")
    messages = parquet.read_table(tmp_path / "messages.parquet").to_pydict()
    assert len(messages["client"]) == sum(group.offered for group in report.groups)
    delivered = [
        left - published
        for left, published, client, outcome in zip(
            messages["left_s"],
            messages["published_s"],
            messages["client"],
            messages["outcome"],
            strict=True,
        )
        if client == "mobile" and outcome == "delivered"
    ]
    mean = sum(delivered) / len(delivered)
    assert 1000 * mean == pytest.approx(report.rows[1].mean_ms)


def test_a_report_of_an_overloaded_link_says_so() -> None:
    report = simulate_command("planemqx", duration=60.0, replications=1)
    assert "overloaded" not in report.text()
    assert json.loads(report.to_json())["rows"][0]["predicted_p95_ms"] is None


def test_figure_4_of_onoff_at_small_effort() -> None:
    report = onoff.figure_4(onoff.Effort(seconds=20_000, replications=4))
    verdicts = {claim.text[:20]: claim.reproduced for claim in report.claims}
    assert list(verdicts.values()) == [True, True, False, True]
    assert "**Not reproduced**" in report.markdown()
    assert len(report.tables[0].rows) == len(onoff.FIGURE_4_RATES)


def test_mechanisms_of_figure_6_meet_the_threshold_and_rank_as_in_the_paper() -> None:
    effort = onoff.Effort(seconds=40_000, replications=4)
    runs = {name: mechanism(2.0, effort) for name, mechanism in onoff.MECHANISMS.items()}
    for name, run in runs.items():
        assert run.response == pytest.approx(onoff.THRESHOLD_S, rel=0.08), name
        if run.predicted is not None:
            assert run.success == pytest.approx(run.predicted, abs=0.02), name
    assert runs["expired, constant"].success > runs["expired, exponential"].success
    assert runs["expired, exponential"].success > runs["overloaded"].success
    assert runs["overloaded"].success > runs["probabilistic"].success


def test_planemqx_like_the_authors_simulator() -> None:
    """Exponential sizes and a constant of 10 ms: their 57.3 ms at 10 Mbps, within 10 %."""
    from headgate.model import Shape
    from headgate.model.simulation.of_scenario import simulate_scenario

    scenario = planemqx.scenario(10 * planemqx.BINARY_MBPS, sizes=Shape.EXPONENTIAL)
    mean = simulate_scenario(scenario, replications=20).everything().mean
    assert 1000 * mean.value + 10 == pytest.approx(planemqx.EDICT_MS[2], rel=0.1)


def test_reproduce_writes_tables_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = planemqx.Effort(replications=2)
    monkeypatch.setattr(planemqx, "reports", lambda tell: [planemqx.plan(small, tell)])
    done = CliRunner().invoke(reproduce, ["planemqx-model", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "Reproduced" in done.output
    assert "Fig. 5: 9 Mbps" in done.stderr
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"planemqx-model-plan.json", "planemqx-model-plan.png"}


def test_gamma_quantiles_from_the_spline_are_scipys() -> None:
    rng = np.random.default_rng(1)
    shape = rng.uniform(0.05, 40.0, 2 * FEW)  # some outside the spline
    rank = rng.uniform(0.0, 0.9999, 2 * FEW)
    assert gamma_quantile(shape, rank) == pytest.approx(gammaincinv(shape, rank), rel=1e-5)
