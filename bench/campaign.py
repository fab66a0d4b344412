"""Runs shapes against brokers, interleaved, so that drift of the machine hits all alike."""

import gc
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.brokers import BenchError, Broker
from bench.client import BrokerError
from bench.packets import UnexpectedPacketError
from bench.shapes import Shape
from bench.target import Effort, Measurement

_DESCRIPTORS = 65536


@dataclass(frozen=True)
class Outcome:
    """What one broker did in one repetition of one shape."""

    shape: str
    broker: str
    repetition: int
    measurement: Measurement | None
    error: str = ""


@dataclass(frozen=True)
class Step:
    """One measurement to make."""

    shape: Shape
    broker: Broker
    repetition: int


def plan(
    shapes: Sequence[Shape], brokers: Sequence[Broker], relay: Broker | None, repetitions: int
) -> list[Step]:
    """Brokers stand next to each other in time; who goes first alternates."""
    steps = []
    for repetition in range(repetitions):
        for number, shape in enumerate(shapes):
            order = list(brokers)
            if (repetition + number) % 2:
                order.reverse()
            if relay is not None and repetition == 0 and shape.relayable:
                order.append(relay)
            steps += [Step(shape, broker, repetition) for broker in order]
    return steps


def carry_out(
    steps: Sequence[Step], effort: Effort, progress: Callable[[int, Step, Outcome], None]
) -> Iterator[Outcome]:
    """Each step with a fresh broker process; its start is not measured."""
    raise_descriptor_limit()
    for number, step in enumerate(steps):
        measurement, error = None, ""
        gc.collect()
        gc.disable()  # a collection among 10,000 clients would look like the broker's pause
        try:
            with step.broker.running() as target:
                measurement = step.shape.run(target, effort)
        except (BrokerError, UnexpectedPacketError, OSError, BenchError) as failure:
            error = str(failure) or type(failure).__name__
        finally:
            gc.enable()
        outcome = Outcome(step.shape.name, step.broker.name, step.repetition, measurement, error)
        progress(number, step, outcome)
        yield outcome


def raise_descriptor_limit() -> None:
    """For 10,000 connections; brokers inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _DESCRIPTORS:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, max(hard, _DESCRIPTORS)))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
