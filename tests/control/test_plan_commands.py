"""`headgate plan`, `whatif` and `history`, as their users see them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from headgate.cli.main import commands
from headgate.contract import Policy
from headgate.control.archive import Archive
from headgate.control.history import Event, History, Record
from headgate.control.planning import plan
from headgate.errors import ConfigurationError
from headgate.experiments.scenarios import load

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


def test_who_cannot_be_satisfied_still_gets_what_others_can_spare(site: str) -> None:
    """The alarm alone asks for more than the link has. The archive would be content with half of
    its messages: what it leaves is the alarm's, and not a matter of indifference."""
    data = told(run("whatif", site, "--link", "floor-2=400kbit", "--json"))
    assert data["verdict"] == "degraded"
    after = {one["application"]: one["after"] for one in data["outlooks"]}
    assert after["archive"]["met"]
    assert after["alarm"]["throughput"] > 20


def test_what_if_there_were_more_traffic(site: str) -> None:
    data = told(run("whatif", site, "--json", "--load", "1.4"))
    assert data["cost"] > 0  # 1.12 Mbit/s do not fit


def test_what_if_another_application_came(site: str, tmp_path: Path) -> None:
    added = tmp_path / "app.yaml"
    added.write_text(ADDITION)
    data = told(run("whatif", site, "--json", "--add", str(added)))
    assert {o["application"] for o in data["outlooks"]} == {"alarm", "archive", "cinema"}


def test_what_if_of_what_the_controller_measured(site: str, tmp_path: Path) -> None:
    scenario = load(site)
    there = replace(scenario.links[0], clients=("alarm", "archive"))  # as the loop knows them
    made = plan(replace(scenario, links=(there,)))
    archive = Archive(tmp_path / "data")
    archive.folder.parent.mkdir()
    archive.keep("1-policy-1", replace(scenario, links=(there,)), made.policy, scenario.links)
    assert archive.scenario.stat().st_mode & 0o777 == 0o600
    added = tmp_path / "app.yaml"
    added.write_text(ADDITION)
    where = ("--data-dir", str(tmp_path / "data"), "--json")
    now = told(run("plan", *where))
    assert now["verdict"] == "unchanged", "it begins with the policy in force"
    data = told(run("whatif", *where, "--link", "floor-2=1500kbit", "--add", str(added)))
    assert {o["application"] for o in data["outlooks"]} == {"alarm", "archive", "cinema"}
    assert not any("no link" in note for note in data["notes"]), "who comes is behind the link"
    nowhere = run("whatif", "--data-dir", str(tmp_path / "other"))
    assert isinstance(nowhere.exception, ConfigurationError)
    assert "no controller has planned in" in str(nowhere.exception)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--link", "floor-9=5Mbit"), "there is no link 'floor-9', there are: floor-2"),
        (("--link", "floor-2=fast"), "expected NAME=RATE"),
        (("--load", "-1"), "expected a number above 0"),
        (("--load", "nan"), "--load nan: expected a number above 0"),
        (("--load", "inf"), "--load inf: expected a number above 0"),
        (("--load", "1e308"), "at most 1,000,000"),
        (("--time-limit", "0"), "--time-limit 0: expected seconds above 0"),
        (("--time-limit", "-1"), "expected seconds above 0"),
        (("--time-limit", "nan"), "expected seconds above 0"),
        (("--add", "nowhere.yaml"), "cannot be read"),
    ],
)
def test_mistakes_get_a_sentence(site: str, words: tuple[str, str], sentence: str) -> None:
    done = run("whatif", site, *words)
    assert isinstance(done.exception, ConfigurationError)
    assert sentence in str(done.exception)


def test_the_largest_load_can_be_planned_for(site: str) -> None:
    assert told(run("whatif", site, "--json", "--load", "1e6"))["verdict"] == "degraded"


@pytest.mark.parametrize("workers", ["-3", "0"])
def test_a_simulation_has_one_worker_at_least(site: str, workers: str) -> None:
    done = run("simulate", site, "--workers", workers)
    assert isinstance(done.exception, SystemExit)
    assert "--workers" in done.output
    assert "x>=1" in done.output


def test_a_plan_as_pddl_names_the_extra_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "headgate.control.archive", None)
    done = run("history", "--data-dir", str(tmp_path), "--pddl", "5")
    assert isinstance(done.exception, ConfigurationError)
    assert "pip install 'headgate[model,planner]'" in str(done.exception)


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


def test_a_data_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    for words in ((), ("--pddl", "1")):
        done = run("history", "--data-dir", str(tmp_path / "nowhere"), *words)
        assert isinstance(done.exception, ConfigurationError)
        assert "nowhere: there is no such folder" in str(done.exception)


def test_what_names_clients_is_for_the_brokers_user_alone(tmp_path: Path) -> None:
    history, archive = History(tmp_path), Archive(tmp_path)
    history.path.touch(mode=0o644)  # as an earlier version left it
    history.add(Record(time=0.0, event=Event.KEPT, why="x", version=1))
    archive.keep("1-policy-1", load(str(_written(tmp_path))), Policy())
    assert history.path.stat().st_mode & 0o777 == 0o600
    assert archive.folder.stat().st_mode & 0o777 == 0o700
    files = archive.files("1-policy-1")
    assert files
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_plan_is_rehearsed_in_the_simulator(site: str) -> None:
    data = told(run("plan", site, "--simulate", "--json"))
    assert data["simulated"]["broken"] == []
    assert {one["application"] for one in data["simulated"]["applications"]} == {"alarm", "archive"}
    assert all(one["met"] for one in data["simulated"]["applications"])


def test_a_plan_of_the_loop_is_shown_and_copied_as_pddl(tmp_path: Path) -> None:
    scenario = load(str(_written(tmp_path)))
    made = plan(scenario)
    archive = Archive(tmp_path)
    archive.keep("12-policy-1", scenario, made.policy)
    History(tmp_path).add(
        Record(time=12.0, event=Event.APPLIED, why="x", version=1, pddl="12-policy-1")
    )
    shown = run("history", "--data-dir", str(tmp_path), "--pddl", "1")
    assert "(configure-l0 alarm planned)" in shown.output
    assert "(<= (response alarm) 1)" in shown.output
    done = run("history", "--data-dir", str(tmp_path), "--pddl", "1", "--out", str(tmp_path / "o"))
    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in (tmp_path / "o").iterdir()) == [
        "link-0-domain.pddl",
        "link-0-plan.pddl",
        "link-0-problem.pddl",
    ]
    missing = run("history", "--data-dir", str(tmp_path), "--pddl", "9")
    assert isinstance(missing.exception, ConfigurationError)
    assert "no plan of policy 9" in str(missing.exception)


def test_old_plans_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.control.archive.KEPT", 2)
    scenario = load(str(_written(tmp_path)))
    archive = Archive(tmp_path)
    for number in range(4):
        archive.keep(f"{number}-policy-1", scenario, Policy())
    assert sorted(path.name for path in archive.folder.iterdir()) == ["2-policy-1", "3-policy-1"]


def _written(folder: Path) -> Path:
    path = folder / "site.yaml"
    path.write_text(SITE)
    return path
