"""Inverse problems of one queue and of a network: the answer meets the threshold, and barely."""

from __future__ import annotations

import msgspec
import pytest

from headgate.experiments.scenarios import load
from headgate.model import MG1, Distribution, Feasible, Infeasible, Model, inverse, network_inverse
from headgate.model.feasibility import largest_below

EXPONENTIAL = Distribution.exponential(0.1)


def test_drop_rate_of_mm1_by_hand() -> None:
    """1 / (10 - 12 (1 - d)) = 0.5 s has d = 1/3."""
    answer = inverse.smallest_drop(12.0, EXPONENTIAL, 0.5)
    assert isinstance(answer, Feasible)
    assert answer.value == pytest.approx(1 / 3)
    assert answer.achieved <= 0.5


def test_no_drop_where_none_is_needed() -> None:
    assert inverse.smallest_drop(1.0, EXPONENTIAL, 0.5) == Feasible(0.0, pytest.approx(1 / 9))


def test_dropping_everything_does_not_beat_the_service_itself() -> None:
    answer = inverse.smallest_drop(12.0, EXPONENTIAL, 0.05)
    assert isinstance(answer, Infeasible)
    assert "service alone takes 0.1 s" in answer.reason


def test_a_limit_on_drops_is_kept() -> None:
    answer = inverse.smallest_drop(12.0, EXPONENTIAL, 0.5, most=0.2)
    assert isinstance(answer, Infeasible)
    assert "drop rate of 0.2" in answer.reason


@pytest.mark.parametrize("percentile", [None, 99])
def test_link_rate_meets_the_threshold_and_no_less_does(percentile: float | None) -> None:
    size = Distribution.exponential(1000)
    answer = inverse.smallest_link_rate(100.0, size, 0.005, percentile=percentile)
    assert isinstance(answer, Feasible)

    def response(rate: float) -> float:
        queue = MG1(100.0, size.scaled(8 / rate))
        return queue.mean_response if percentile is None else queue.response_quantile(0.99)

    assert response(answer.value) <= 0.005 * (1 + 1e-6)
    assert response(answer.value * 0.999) > 0.005


def test_bracketing_starts_inside_the_stable_region() -> None:
    """The measure is infinite over most of the interval."""
    answer = largest_below(
        lambda x: 1 / (1e-6 - x) if x < 1e-6 else float("inf"), 2e6, 0.0, 1.0, unmet=str
    )
    assert isinstance(answer, Feasible)
    assert answer.value == pytest.approx(5e-7)


class TestNetwork:
    scenario = load("planemqx")
    model = Model(scenario)
    real_time = tuple(n for n, flow in enumerate(model.table.flows) if flow.category == "RT")
    analytics = tuple(n for n, flow in enumerate(model.table.flows) if flow.category == "AN")

    def test_drops_of_one_category_help_another(self) -> None:
        settings = self.model.table.settings(None)
        answer = network_inverse.smallest_drop(
            self.model, settings, dropping=self.analytics, flows=self.real_time, threshold_s=0.03
        )
        assert isinstance(answer, Feasible)
        assert 0 < answer.value < 1
        assert answer.achieved == pytest.approx(0.03, abs=1e-6)

    def test_what_drops_cannot_do_is_said(self) -> None:
        settings = self.model.table.settings(None)
        answer = network_inverse.smallest_drop(
            self.model, settings, dropping=self.analytics, flows=self.real_time, threshold_s=0.002
        )
        assert isinstance(answer, Infeasible)
        assert "even if 100% of these messages are dropped" in answer.reason

    def test_link_rate(self) -> None:
        answer = network_inverse.smallest_link_rate(
            self.scenario, None, link="applications", flows=self.real_time, threshold_s=0.02
        )
        assert isinstance(answer, Feasible)
        links = (msgspec.structs.replace(self.scenario.links[0], rate=round(answer.value * 1.001)),)
        faster = Model(msgspec.structs.replace(self.scenario, links=links)).predict()
        assert max(faster.mean[list(self.real_time)]) < 0.02
        unknown = network_inverse.smallest_link_rate(
            self.scenario, None, link="moon", flows=[0], threshold_s=1
        )
        assert isinstance(unknown, Infeasible)

    def test_join_of_the_onoff_scenario(self) -> None:
        model = Model(load("onoff"))
        answer = network_inverse.largest_join(
            model, model.table.settings(None), joining=[0], flows=[0], threshold_s=7.0
        )
        assert isinstance(answer, Feasible)
        assert answer.value == pytest.approx(0.417, abs=5e-4)
