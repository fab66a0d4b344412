"""What the planes share, as frozen data."""

from headgate.contract.link import Discipline, LinkSpec
from headgate.contract.policy import FlowSelector, Policy, PolicyRule
from headgate.contract.requirement import Application, Category, Requirement
from headgate.contract.snapshot import FlowSnapshot, LinkSnapshot, Snapshot

__all__ = [
    "Application",
    "Category",
    "Discipline",
    "FlowSelector",
    "FlowSnapshot",
    "LinkSnapshot",
    "LinkSpec",
    "Policy",
    "PolicyRule",
    "Requirement",
    "Snapshot",
]
