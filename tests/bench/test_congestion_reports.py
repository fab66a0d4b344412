"""Rates with their units, and reports that go on with earlier results."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench import network
from bench.brokers import BenchError
from bench.congestion import earlier, report
from bench.congestion.contenders import PLANNED
from bench.congestion.evaluating import Conditions, Experience
from bench.congestion.measuring import Result
from bench.congestion.workload import CATEGORIES
from bench.figures import Times
from bench.network import Line
from bench.usage import Used


@pytest.mark.parametrize(
    ("text", "bits", "said"),
    [
        ("10Mbit", 1e7, "10 Mbit/s"),
        ("10Mibit", 10 * 2**20, "10 Mibit/s"),
        ("10", 10 * 2**20, "10 Mibit/s"),
        ("8.5Mbit", 8.5e6, "8.5 Mbit/s"),
    ],
)
def test_a_rate_says_what_it_counts_in(text: str, bits: float, said: str) -> None:
    assert network.rate(text) == bits
    assert network.spoken(bits) == said


@pytest.mark.parametrize("text", ["", "Mbit", "10kbit", "-1", "0Mbit", "10 Mbit/s", "nan"])
def test_what_is_no_rate_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BenchError, match="expected one such as 10Mbit"):
        network.rate(text)


def result(broker: str, p99: float) -> Result:
    times = Times(100, 5.0, 4.0, 10.0, p99, 20.0)
    ideal = times if broker == "strict" else None
    experiences = {
        category: Experience(times, 100, 2, 0, 0.2, 0.2, 0.1, ideal) for category in CATEGORIES
    }
    used = Used(0.1, 0.1, 0.0)
    return Result(broker, 1e7, 1.0, "poisson", experiences, times, 0.9, 0, 0, used, 20.0)


def test_earlier_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = [result("mosquitto", 300.0), result("strict", 15.0)]
    conditions = Conditions(seconds=20.0)
    kept = report.document(results, Line(1e7), conditions, PLANNED, {}, {"mosquitto": "2.0"})
    file = tmp_path / "earlier.json"
    file.write_text(json.dumps(kept))
    found, versions = earlier.read(file)
    assert versions == {"mosquitto": "2.0"}
    assert report.table(found) == report.table(results)
    assert [asdict(one)["seconds"] for one in found] == [20.0, 20.0]


def test_what_is_no_result_is_refused_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    with pytest.raises(BenchError, match="holds no result"):
        earlier.read(file)
