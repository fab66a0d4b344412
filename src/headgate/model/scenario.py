"""A scenario: who publishes what, who wants it, and over which links it goes.

The nouns are the configuration's, so that a scenario can be cut from a running broker: applications
and links are the same records, clients are found by the same globs. What a configuration does not
know, and a model must, comes from measurement or from the operator: the traffic of each topic, the
subscriptions and connectivity of each client, the broker's own input rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, TypeVar

from msgspec import Meta, structs

from headgate.contract import Application, LinkSpec, PeriodRange, PolicyRule
from headgate.contract.schema import (
    MOST,
    Count,
    Duration,
    Fraction,
    Kind,
    Name,
    Positive,
    Problem,
    Record,
    Size,
    TopicFilter,
    rule,
)
from headgate.model.distributions import Distribution


class ArrivalProcess(StrEnum):
    """When the messages of a topic come."""

    POISSON = "poisson"
    PERIODIC = "periodic"
    """At equal distances; with `jitter`, around equal distances."""
    BURSTS = "bursts"
    """Poisson in exponential ON periods, nothing in OFF periods."""
    TRACE = "trace"
    """At the times given."""


class Shape(StrEnum):
    """The form of a distribution whose mean is given."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"
    UNIFORM = "uniform"
    """From 0 to twice the mean."""
    ERLANG = "erlang"
    """`scv` below 1."""
    HYPEREXPONENTIAL = "hyperexponential"
    """`scv` above 1."""
    LOGNORMAL = "lognormal"
    """Any `scv`."""


def distribution(shape: Shape, mean: float, scv: float | None = None) -> Distribution:
    """`scv` is variance over squared mean, where the shape leaves it open."""
    match shape:
        case Shape.CONSTANT:
            return Distribution.constant(mean)
        case Shape.EXPONENTIAL:
            return Distribution.exponential(mean)
        case Shape.UNIFORM:
            return Distribution.uniform(0.0, 2 * mean)
        case Shape.ERLANG:
            return Distribution.erlang(mean, max(1, round(1 / (0.25 if scv is None else scv))))
        case Shape.HYPEREXPONENTIAL:
            return Distribution.hyperexponential(mean, 4.0 if scv is None else scv)
        case Shape.LOGNORMAL:
            return Distribution.lognormal(mean, 1.0 if scv is None else scv)


class Topic(Record, frozen=True):
    """What is published to one topic."""

    name: Name
    rate: Positive | None = None
    """Messages per second, in the long run."""
    arrivals: ArrivalProcess = ArrivalProcess.POISSON
    jitter: Fraction = 0.0
    """Width of the random shift of a periodic message, in periods."""
    on: Duration | None = None
    off: Duration | None = None
    """Mean length of bursts, and of the silence between them."""
    times: tuple[float, ...] = ()
    """Of a trace: seconds from the start."""
    size: Size = 100
    """Payload bytes, on average."""
    sizes: Shape = Shape.CONSTANT
    size_scv: Positive | None = None
    size_values: tuple[int, ...] = ()
    """Instead of a shape: sizes, each as likely as the others."""
    period: PeriodRange | None = None
    """Its publishers can be slowed: at `min` seconds between two messages of one, the topic has
    this rate."""

    @rule("rate", "arrivals", "times", "on", "off")
    def _arrivals_are_complete(self) -> Iterator[Problem]:
        if self.arrivals is ArrivalProcess.TRACE:
            if not self.times or self.times[-1] <= 0 or list(self.times) != sorted(self.times):
                yield Problem(("times",), "a trace needs ascending times in seconds")
        elif self.rate is None:
            yield Problem(("rate",), "is missing: expected messages per second")
        if self.arrivals is ArrivalProcess.BURSTS and not (self.on and self.off):
            yield Problem((), "bursts need `on` and `off`, their mean length and distance")

    @rule("sizes", "size_scv")
    def _scv_fits(self) -> Iterator[Problem]:
        if self.size_scv is None:
            return
        if self.sizes is Shape.ERLANG and self.size_scv > 1:
            yield Problem(("size_scv",), "an Erlang distribution has at most 1")
        if self.sizes is Shape.HYPEREXPONENTIAL and self.size_scv < 1:
            yield Problem(("size_scv",), "a hyperexponential distribution has at least 1")

    @property
    def mean_rate(self) -> float:
        if self.rate is not None:
            return self.rate
        return len(self.times) / self.times[-1]

    @property
    def size_distribution(self) -> Distribution:
        if self.size_values:
            return Distribution.empirical(self.size_values)
        return distribution(self.sizes, float(self.size), self.size_scv)


class Connectivity(Record, frozen=True):
    """A client that connects and disconnects (ON/OFF §II-C)."""

    on: Annotated[float, Kind.DURATION, Meta(gt=0)]
    off: Annotated[float, Kind.DURATION, Meta(gt=0)]
    """Mean periods, in seconds."""
    drain: Positive
    """Messages per second that it takes while connected."""
    periods: Shape = Shape.EXPONENTIAL
    service: Shape = Shape.EXPONENTIAL


class Client(Record, frozen=True):
    """A subscriber."""

    name: Name
    """Its client id."""
    subscriptions: Annotated[tuple[TopicFilter, ...], Kind.ONE_OR_MORE]
    application: Name | None = None
    """By default, the application whose globs match the client id."""
    known_as: str | None = None
    """What rules know its application by, where that is another name: of a client that asks for
    more or less than the others of its application. Empty if it belongs to none."""
    connectivity: Connectivity | None = None
    """By default, always connected."""


class InputQueue(Record, frozen=True):
    """The broker's own work on a message, before it knows the subscriptions."""

    rate: Positive
    """Messages per second."""
    service: Shape = Shape.EXPONENTIAL
    capacity: Count | None = None


class Stage(Record, frozen=True):
    """Something after the link that takes time: a radio hop, the application's own work."""

    name: Name
    time: Duration
    """Mean, in seconds."""
    clients: Annotated[tuple[str, ...], Kind.ONE_OR_MORE] = ("*",)
    """Globs of client ids."""
    service: Shape = Shape.CONSTANT
    queue: bool = False
    """One message at a time; otherwise a delay that any number share."""


class LinkCalibration(Record, frozen=True):
    """How a link differs from the model of it, as measured (docs/knowledge.md).

    With `modelled` the response for Poisson arrivals and `service` a packet's own time, it is

        response_factor x (service + burstiness x (modelled - service))
    """

    name: Name
    """Of the link."""
    burstiness: Positive = 1.0
    response_factor: Positive = 1.0
    overhead: Annotated[float, Meta(ge=0, le=MOST)] | None = None
    """Bytes on this link for each message, in place of the scenario's `overhead`."""


class Scenario(Record, frozen=True):
    """All that the model and the simulator need to know but the policy's variants."""

    topics: Annotated[tuple[Topic, ...], Kind.KEYED]
    clients: Annotated[tuple[Client, ...], Kind.KEYED]
    name: Name = "scenario"
    description: str = ""
    duration: Annotated[float, Kind.DURATION, Meta(gt=0)] = 300.0
    warmup: Duration = 60.0
    applications: Annotated[tuple[Application, ...], Kind.KEYED] = ()
    links: tuple[LinkSpec, ...] = ()
    input: InputQueue | None = None
    stages: tuple[Stage, ...] = ()
    overhead: Size = 0
    """Bytes on the link for each message beside its payload: MQTT, TCP and IP headers."""
    calibration: Annotated[tuple[LinkCalibration, ...], Kind.KEYED] = ()
    """For the model only: a simulation makes its own arrivals."""
    lifetimes: Shape = Shape.CONSTANT
    """The form of the lifetimes that the policy gives."""
    policy: tuple[PolicyRule, ...] = ()

    @rule("duration", "warmup")
    def _warmup_is_shorter(self) -> Iterator[Problem]:
        if self.warmup >= self.duration:
            yield Problem(("warmup",), f"must be shorter than the duration, {self.duration:g} s")

    @rule("clients", "applications")
    def _applications_exist(self) -> Iterator[Problem]:
        known = {application.name for application in self.applications}
        for client in self.clients:
            if client.application is not None and client.application not in known:
                yield Problem(
                    ("clients", client.name, "application"),
                    f"no application is called {client.application!r}",
                )


class Addition(Record, frozen=True):
    """What joins a scenario; whatever has a name that is there already takes its place."""

    topics: Annotated[tuple[Topic, ...], Kind.KEYED] = ()
    clients: Annotated[tuple[Client, ...], Kind.KEYED] = ()
    applications: Annotated[tuple[Application, ...], Kind.KEYED] = ()

    def to(self, scenario: Scenario) -> Scenario:
        return structs.replace(
            scenario,
            topics=_joined(scenario.topics, self.topics),
            clients=_joined(scenario.clients, self.clients),
            applications=_joined(scenario.applications, self.applications),
        )


Named = TypeVar("Named", bound=Topic | Client | Application)


def _joined(there: tuple[Named, ...], added: tuple[Named, ...]) -> tuple[Named, ...]:
    return tuple({record.name: record for record in (*there, *added)}.values())
