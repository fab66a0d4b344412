"""What the planes share, as frozen data."""

from headgate.contract.link import Discipline, LinkSpec
from headgate.contract.policy import FlowSelector, Policy, PolicyRule
from headgate.contract.requirement import Application, Category, Requirement

__all__ = [
    "Application",
    "Category",
    "Discipline",
    "FlowSelector",
    "LinkSpec",
    "Policy",
    "PolicyRule",
    "Requirement",
]
