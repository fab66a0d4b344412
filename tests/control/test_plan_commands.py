"""`headgate plan`, `whatif` and `history`, as their users see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headgate.cli.main import commands
from headgate.contract import Policy
from headgate.control.history import Event, History, Record
from headgate.errors import ConfigurationError

ADDITION = """
topics: {film: {rate: 10, size: 10KB}}
clients: {viewer: {subscriptions: film, application: cinema}}
applications: {cinema: {requirement: {mean_ms: 100, loss: 0.0}, weight: 5}}
"""
SITE = """
topics: {t: {rate: 50, size: 1KB}}
clients: {alarm: {subscriptions: t}, archive: {subscriptions: t}}
applications:
  alarm: {clients: [alarm], requirement: {mean_ms: 30, loss: 0.0}, weight: 10}
  archive: {clients: [archive], requirement: {mean_ms: 5000, loss: 0.5}}
links: [{name: floor-2, clients: ["*"], rate: 1Mbit}]
"""


@pytest.fixture
def site(tmp_path: Path) -> str:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    return str(path)


def run(*words: str) -> Result:
    return CliRunner().invoke(commands, list(words), catch_exceptions=True)


def told(done: Result) -> dict:
    assert done.exit_code == 0, done.output
    data: dict = json.loads(done.stdout)
    return data


def test_the_policy_is_written_as_the_broker_takes_it(site: str, tmp_path: Path) -> None:
    out = tmp_path / "policy.json"
    data = told(run("plan", site, "--json", "--out", str(out)))
    policy = Policy.from_json(out.read_bytes())
    assert policy.version == 1
    assert len(policy.rules) == len(data["policy"]["rules"]) == 2


def test_what_if_the_link_were_slower(site: str) -> None:
    assert told(run("whatif", site, "--json"))["verdict"] == "planned"
    slow = told(run("whatif", site, "--json", "--link", "floor-2=400kbit"))
    assert slow["verdict"] == "degraded"
    rates = [r["needed"] for c in slow["conflicts"] for r in c["remedies"] if r["what"] == "rate"]
    assert rates[0] > 400e3


def test_what_if_there_were_more_traffic(site: str) -> None:
    data = told(run("whatif", site, "--json", "--load", "1.4"))
    assert data["cost"] > 0  # 1.12 Mbit/s do not fit


def test_what_if_another_application_came(site: str, tmp_path: Path) -> None:
    added = tmp_path / "app.yaml"
    added.write_text(ADDITION)
    data = told(run("whatif", site, "--json", "--add", str(added)))
    assert {o["application"] for o in data["outlooks"]} == {"alarm", "archive", "cinema"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--link", "floor-9=5Mbit"), "there is no link 'floor-9', there are: floor-2"),
        (("--link", "floor-2=fast"), "expected NAME=RATE"),
        (("--load", "-1"), "expected a number above 0"),
        (("--add", "nowhere.yaml"), "cannot be read"),
    ],
)
def test_mistakes_get_a_sentence(site: str, words: tuple[str, str], sentence: str) -> None:
    done = run("whatif", site, *words)
    assert isinstance(done.exception, ConfigurationError)
    assert sentence in str(done.exception)


@pytest.mark.parametrize("command", ["plan", "whatif", "control", "history"])
def test_help_has_an_example(command: str) -> None:
    done = run(command, "--help")
    assert "Example" in done.output
    assert f"headgate {command}" in done.output


def test_history_is_told(tmp_path: Path) -> None:
    assert "no history" in run("history", "--data-dir", str(tmp_path)).output
    record = Record(
        time=0.0, event=Event.ROLLED_BACK, why="it was worse", version=7, steps=["floor/alarm: 0"]
    )
    History(tmp_path).add(record)
    output = run("history", "--data-dir", str(tmp_path)).output
    assert "1970-01-01T00:00:00+00:00  policy 7  rolled back: it was worse" in output
    assert "floor/alarm: 0" in output
    assert json.loads(run("history", "--data-dir", str(tmp_path), "--json").output)["version"] == 7
