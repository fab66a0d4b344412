"""Plans that leave a link some room.

The cheapest plan uses a link to the last per cent if the requirements allow it: an application that
may wait for ten seconds is made to wait for ten. But what gathered before the plan came would then
stay for ever, and with it every second of it that the model did not foresee. So a link is planned
for a little less than it carries, where that keeps everything; where it does not, for all of it.
"""

from __future__ import annotations

import msgspec

from headgate.contract import Policy
from headgate.control.planning import Plan, plan
from headgate.model import Scenario

ROOM = 0.05
"""The fraction of each link that is left for what waits already and for what nobody foresaw."""


def plan_with_room(scenario: Scenario, policy: Policy, seconds: float) -> Plan:
    """The cheapest plan that leaves room; if there is none, the cheapest. Each gets the time."""
    made = plan(smaller(scenario), policy, seconds=seconds, remedies=False)
    return made if made.feasible else plan(scenario, policy, seconds=seconds, remedies=False)


def smaller(scenario: Scenario) -> Scenario:
    """The same with less of each link."""
    return msgspec.structs.replace(
        scenario,
        links=tuple(
            link
            if link.rate is None
            else msgspec.structs.replace(link, rate=round(link.rate * (1 - ROOM)))
            for link in scenario.links
        ),
    )
