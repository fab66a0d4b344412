"""The configuration file: YAML in, frozen data out, every mistake named with its line."""

from headgate.config.addresses import Address
from headgate.config.auth import ADMIN, AccessRule, Action, Algorithm, Auth, Jwt
from headgate.config.broker import (
    Durability,
    Metrics,
    Overflow,
    Planner,
    PlannerMode,
    Unpermitted,
    Urgency,
)
from headgate.config.describing import describe, remarks, summarise
from headgate.config.limits import Limits
from headgate.config.listeners import Listener, ListenerType, Tls, TlsVersion
from headgate.config.loading import Draft, defaults, draft, load, parse
from headgate.config.mistakes import InvalidConfigurationError, Mistake
from headgate.config.recorder import Capture, CaptureRule, RecorderConfig
from headgate.config.root import Configuration

__all__ = [
    "ADMIN",
    "AccessRule",
    "Action",
    "Address",
    "Algorithm",
    "Auth",
    "Capture",
    "CaptureRule",
    "Configuration",
    "Draft",
    "Durability",
    "InvalidConfigurationError",
    "Jwt",
    "Limits",
    "Listener",
    "ListenerType",
    "Metrics",
    "Mistake",
    "Overflow",
    "Planner",
    "PlannerMode",
    "RecorderConfig",
    "Tls",
    "TlsVersion",
    "Unpermitted",
    "Urgency",
    "defaults",
    "describe",
    "draft",
    "load",
    "parse",
    "remarks",
    "summarise",
]
