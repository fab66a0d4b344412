"""What the planes share, as frozen data."""

from headgate.contract.link import Discipline, LinkSpec
from headgate.contract.period import AdaptingTopic, PeriodRange
from headgate.contract.policy import FlowSelector, Policy, PolicyRule
from headgate.contract.requirement import Application, Category, Claim, Requirement
from headgate.contract.snapshot import FlowSnapshot, LinkSnapshot, Snapshot

__all__ = [
    "AdaptingTopic",
    "Application",
    "Category",
    "Claim",
    "Discipline",
    "FlowSelector",
    "FlowSnapshot",
    "LinkSnapshot",
    "LinkSpec",
    "PeriodRange",
    "Policy",
    "PolicyRule",
    "Requirement",
    "Snapshot",
]
