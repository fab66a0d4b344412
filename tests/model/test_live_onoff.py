"""The ON/OFF experiment on a broker process with clients that connect and disconnect."""

from __future__ import annotations

import pytest

from headgate.experiments.live_onoff import SERVICE_RATE, Experiment, expected, run


@pytest.mark.slow
def test_the_live_broker_agrees_with_the_closed_form() -> None:
    """20 s are 1 s, or more where the machine is too busy to play them that fast. 40 clients are
    240 cycles for each ζ; the tolerance is twice the 95 % interval, and a tenth for what scaled
    time makes of the scheduling.
    """
    for scale in (20.0, 10.0, 5.0):
        experiment = Experiment(
            scale=scale,
            clients=40,
            warmup_s=60.0,
            measured_s=240.0,
            rest_s=160.0,
            joins=(0.25, 1.0),
            by_threshold=False,
        )
        few, all_of_them = run(experiment)
        if few.late_s < 0.25 / SERVICE_RATE:
            break
    print(few, all_of_them)
    for one in (few, all_of_them):
        queue = expected(experiment, one.join)
        response, success = float(queue.mean_response), float(queue.success_rate)
        assert abs(one.response_s - response) < 2 * one.response_half + 0.1 * response
        assert abs(one.success - success) < 2 * one.success_half + 0.01
    assert all_of_them.success == pytest.approx(1.0, abs=0.01)  # but for what waits still
    assert few.response_s < all_of_them.response_s
