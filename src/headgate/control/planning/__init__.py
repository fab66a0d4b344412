"""Planning: requirements and a scenario in, a plan out. No side effects, no clock but a limit."""

from headgate.control.planning.outlook import broken, expectations
from headgate.control.planning.plan import (
    Conflict,
    Expected,
    Outlook,
    Plan,
    Remedy,
    Step,
    Verdict,
)
from headgate.control.planning.planner import plan
from headgate.control.planning.problem import Decision, Group, LinkProblem, Problem

__all__ = [
    "Conflict",
    "Decision",
    "Expected",
    "Group",
    "LinkProblem",
    "Outlook",
    "Plan",
    "Problem",
    "Remedy",
    "Step",
    "Verdict",
    "broken",
    "expectations",
    "plan",
]
