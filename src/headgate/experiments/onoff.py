"""The experiments of ON/OFF §IV, analytic and simulated.

One subscriber takes 8 messages per second in ON periods of 20 s on average, with OFF periods of
20 s between; in Figs. 6 and 7 the broker's input takes 16 per second and the threshold is 7 s.
The paper's Fig. 5 lists the lifetimes and capacities that it used as a picture; here they are
found anew: for each arrival rate, the value with which the delivered messages take 7 s on
average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scipy.optimize import brentq

from headgate.experiments.report import Claim, Report, Table, Tell, silently
from headgate.model import MM1K, Distribution, Feasible, LimitedOnOffQueue, OnOffQueue
from headgate.model.inverse import largest_join
from headgate.model.simulation import (
    Arrivals,
    Group,
    Network,
    Outcome,
    Source,
    Station,
    Stream,
    simulate,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERVICE, ON_S, OFF_S, INPUT, THRESHOLD_S = 8.0, 20.0, 20.0, 16.0, 7.0
JOINS = (0.25, 0.5, 0.75, 1.0)
FIGURE_4_RATES = (0.05, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
FIGURE_6_RATES = (0.05, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.8, 5.0, 6.0, 7.0, 7.7)


@dataclass(frozen=True)
class Effort:
    """How long to simulate: periods of 20 s average out slowly."""

    seconds: float = 200_000.0
    replications: int = 8
    seed: int = 1

    def again(self, number: int) -> Effort:
        """Other random numbers, so that the points of a figure do not err alike."""
        return replace(self, seed=self.seed + number)


USUAL = Effort()


def simulated(
    rate: float,
    effort: Effort,
    *,
    join: float = 1.0,
    lifetime: Distribution | None = None,
    capacity: int | None = None,
    with_input: bool = True,
) -> Group:
    """The network of Fig. 1 with one subscriber."""
    period = Distribution.exponential(ON_S)
    stations = [
        Station(
            service=Distribution.exponential(1 / SERVICE),
            on=period,
            off=Distribution.exponential(OFF_S),
            capacity=capacity,
        )
    ]
    if with_input:
        stations.append(Station(service=Distribution.exponential(1 / INPUT), capacity=capacity))
    stream = Stream((0,), join=join, lifetime=lifetime)
    source = Source(Arrivals.poisson(rate), (stream,), entry=1 if with_input else None)
    return simulate(
        Network([source], stations),
        horizon=effort.seconds,
        warmup=effort.seconds / 50,
        replications=effort.replications,
        seed=effort.seed,
    ).group()


def figure_4(effort: Effort = USUAL, tell: Tell = silently) -> Report:
    """Mean response over the arrival rate, for four join probabilities."""
    rows = []
    worst = 0.0
    for i, rate in enumerate(FIGURE_4_RATES):
        tell(f"Fig. 4: {rate:g} messages/s")
        row: list[float | str] = [rate]
        for j, join in enumerate(JOINS):
            exact = float(OnOffQueue(rate, SERVICE, ON_S, OFF_S, join).mean_response)
            measured = simulated(
                rate, effort.again(len(JOINS) * i + j), join=join, with_input=False
            ).mean
            row += [exact, str(measured)]
            worst = max(worst, abs(measured.value - exact) / measured.half_width)
        rows.append(row)
    columns = ["λ (1/s)"]
    for join in JOINS:
        columns += [f"ζ={join:g}: Eq. 28 (s)", "simulated (s)"]

    def draw(axes: Axes) -> None:
        for number, join in enumerate(JOINS):
            color = f"C{number}"
            axes.plot(
                FIGURE_4_RATES,
                [row[1 + 2 * number] for row in rows],
                color=color,
                label=f"ζ = {join:g}, Eq. 28",
            )
            points = [str(row[2 + 2 * number]).split(" ± ") for row in rows]
            axes.errorbar(
                FIGURE_4_RATES,
                [float(value) for value, _ in points],
                yerr=[float(width) for _, width in points],
                fmt="o",
                color=color,
                markersize=4,
                label="simulated, 95 %",
            )
        axes.set(xlabel="arrival rate λ (1/s)", ylabel="mean response (s)", ylim=(0, 90))
        axes.legend(ncols=2, fontsize="small")

    lowest = min(float(row[-2]) for row in rows)
    counterexample = OnOffQueue(6.0, SERVICE, ON_S, OFF_S, 0.5)
    claims = [
        Claim(
            "Eq. 28 is of high accuracy (§IV-A).",
            worst <= 2,
            f"Every simulated mean is within {worst:.1f} half-widths of its 95 % interval.",
        ),
        Claim(
            "With ζ = 1 the queue is saturated above 4 messages/s (§IV-A).",
            not OnOffQueue(4.001, SERVICE, ON_S, OFF_S).stable
            and bool(OnOffQueue(3.999, SERVICE, ON_S, OFF_S).stable),
            "ρ (1 + ζ θ_ON/θ_OFF) reaches 1 at λ = 4.",
        ),
        Claim(
            "For ζ < 1 higher rates are possible on the condition 1 - λ_eff/µ < 1 (§IV-A).",
            bool(counterexample.stable) or not 1 - float(counterexample.throughput) / SERVICE < 1,
            "That condition holds for every queue; λ = 6, ζ = 0.5 satisfies it and grows without "
            "end. The condition is ρ (1 + ζ θ_ON/θ_OFF) < 1.",
        ),
        Claim(
            "Without dropping, no response is below 10 s (§IV-B).",
            lowest >= 10,
            f"The lowest is {lowest:.2f} s, at λ = {FIGURE_4_RATES[0]}.",
        ),
    ]
    table = Table("Mean response of the ON/OFF queue", columns, rows)
    return Report(
        "onoff-fig4",
        "ON/OFF Fig. 4: response of the probabilistic ON/OFF queue",
        [table],
        claims,
        draw,
    )


@dataclass(frozen=True)
class Mechanism:
    """One dropping mechanism at one arrival rate, set to a mean response of 7 s."""

    parameter: float
    response: float
    predicted: float | None
    """Success rate by the closed form or the numerical chain."""
    measured: Group

    @property
    def success(self) -> float:
        return 1 - self.measured.loss.value


def probabilistic(rate: float, effort: Effort) -> Mechanism:
    answer = largest_join(rate, SERVICE, ON_S, OFF_S, THRESHOLD_S, input_rate=INPUT)
    join = answer.value if isinstance(answer, Feasible) else 0.0
    queue = OnOffQueue(rate, SERVICE, ON_S, OFF_S, join)
    measured = simulated(rate, effort, join=join)
    return Mechanism(join, measured.mean.value, float(queue.success_rate), measured)


def expired_exponential(rate: float, effort: Effort) -> Mechanism:
    """The lifetime starts at publication; memoryless, so what is left of it after the input queue
    has the same distribution, and the input's part of the response is exponential."""

    def queues(lifetime: float) -> tuple[float, float]:
        expiry = 1 / lifetime
        passed = (INPUT - rate) / (INPUT - rate + expiry)
        output = LimitedOnOffQueue(rate * passed, SERVICE, ON_S, OFF_S, lifetime_s=lifetime)
        return 1 / (INPUT - rate + expiry) + output.mean_response, passed * output.success_rate

    lifetime = float(brentq(lambda x: queues(x)[0] - THRESHOLD_S, 0.5, 200.0, xtol=1e-6))
    measured = simulated(rate, effort, lifetime=Distribution.exponential(lifetime))
    return Mechanism(lifetime, measured.mean.value, queues(lifetime)[1], measured)


def expired_constant(rate: float, effort: Effort) -> Mechanism:
    """No closed form: the lifetime is found by simulation, on common random numbers."""
    short = Effort(effort.seconds / 4, effort.replications, effort.seed)

    def excess(lifetime: float) -> float:
        run = simulated(rate, short, lifetime=Distribution.constant(lifetime))
        return run.mean.value - THRESHOLD_S

    lifetime = float(brentq(excess, 5.0, 200.0, xtol=0.05))
    measured = simulated(rate, effort, lifetime=Distribution.constant(lifetime))
    return Mechanism(lifetime, measured.mean.value, None, measured)


def overloaded(rate: float, effort: Effort) -> Mechanism:
    """The largest capacity K, at both queues, with which the response is within the threshold."""

    capacity = 1
    while finite(rate, capacity + 1)[0] <= THRESHOLD_S:
        capacity += 1
    measured = simulated(rate, effort, capacity=capacity)
    return Mechanism(capacity, measured.mean.value, finite(rate, capacity)[1], measured)


def finite(rate: float, capacity: int) -> tuple[float, float]:
    """Mean response and success rate by the model, with `capacity` at both queues."""
    entry = MM1K(rate, INPUT, capacity)
    output = LimitedOnOffQueue(entry.throughput, SERVICE, ON_S, OFF_S, capacity=capacity)
    return entry.mean_response + output.mean_response, (1 - entry.loss) * output.success_rate


def finite_at_threshold(rate: float, capacity: int) -> float:
    """Success rate at 7 s sharp, between two capacities: K is a whole number and 7 s is not."""
    (below, success), (above, more) = finite(rate, capacity), finite(rate, capacity + 1)
    part = min(1.0, max(0.0, (THRESHOLD_S - below) / (above - below)))
    return success + part * (more - success)


MECHANISMS: dict[str, Callable[[float, Effort], Mechanism]] = {
    "probabilistic": probabilistic,
    "expired, constant": expired_constant,
    "expired, exponential": expired_exponential,
    "overloaded": overloaded,
}


def figures_6_and_7(
    effort: Effort = USUAL,
    rates: Sequence[float] = FIGURE_6_RATES,
    tell: Tell = silently,
) -> tuple[Report, Report]:
    """Success rates of three mechanisms that all keep 7 s, and what each loses in ON periods."""
    results: dict[str, list[Mechanism]] = {name: [] for name in MECHANISMS}
    for name, mechanism in MECHANISMS.items():
        for i, rate in enumerate(rates):
            tell(f"Figs. 6 and 7: {name}, {rate:g} messages/s")
            results[name].append(mechanism(rate, effort.again(i)))
    return _figure_6(rates, results), _figure_7(rates, results)


def _figure_6(rates: Sequence[float], results: dict[str, list[Mechanism]]) -> Report:
    success = Table(
        "Success rate (%), simulated; in brackets by the model",
        ["λ (1/s)", *results],
        [
            [
                rate,
                *[
                    f"{100 * run.success:.1f} ± {100 * run.measured.loss.half_width:.1f}"
                    + ("" if run.predicted is None else f" ({100 * run.predicted:.1f})")
                    for run in (results[name][i] for name in results)
                ],
            ]
            for i, rate in enumerate(rates)
        ],
    )
    parameters = Table(
        "What each needs for 7 s (the paper's Fig. 5): ζ, lifetimes (s), capacity K; mean response",
        ["λ (1/s)", *results],
        [
            [
                rate,
                *[
                    f"{results[name][i].parameter:.3g}: {results[name][i].response:.2f} s"
                    for name in results
                ],
            ]
            for i, rate in enumerate(rates)
        ],
    )

    def draw(axes: Axes) -> None:
        for name, runs in results.items():
            axes.errorbar(
                rates,
                [100 * run.success for run in runs],
                yerr=[100 * run.measured.loss.half_width for run in runs],
                marker="o",
                markersize=4,
                label=name,
            )
        axes.set(xlabel="arrival rate λ (1/s)", ylabel="success rate (%)")
        axes.legend()

    return Report(
        "onoff-fig6",
        "ON/OFF Fig. 6: success rates when the mean response is 7 s",
        [success, parameters],
        _figure_6_claims(rates, results),
        draw,
    )


def _figure_6_claims(rates: Sequence[float], results: dict[str, list[Mechanism]]) -> list[Claim]:
    expired = [results["expired, constant"], results["expired, exponential"]]
    low = [
        run.success for runs in expired for rate, run in zip(rates, runs, strict=True) if rate < 2
    ]
    others = [
        max(a.success, b.success)
        for a, b in zip(results["probabilistic"], results["overloaded"], strict=True)
    ]
    beaten = {
        name: [
            f"{rate:g}"
            for rate, run, other in zip(rates, results[name], others, strict=True)
            if run.success < other
        ]
        for name in ("expired, constant", "expired, exponential")
    }
    steps = [
        (runs[i].success - runs[i + 1].success) / (rates[i + 1] - rates[i])
        for runs in expired
        for i in range(len(rates) - 1)
        if rates[i] >= 2
    ]
    before = [
        (runs[i].success - runs[i + 1].success) / (rates[i + 1] - rates[i])
        for runs in expired
        for i in range(len(rates) - 1)
        if rates[i] >= 0.5 and rates[i + 1] <= 2
    ]
    gaps = [
        100 * (finite_at_threshold(rate, int(b.parameter)) - (a.predicted or 0.0))
        for rate, a, b in zip(rates, results["probabilistic"], results["overloaded"], strict=True)
        if 0.05 < rate < 7.7
    ]
    whole = [
        100 * (b.success - a.success)
        for rate, a, b in zip(rates, results["probabilistic"], results["overloaded"], strict=True)
        if 0.05 < rate < 7.7
    ]
    return [
        Claim(
            "For λ < 2 the success rates of expiry are above 67 %.",
            min(low) > 0.67,
            f"The lowest is {100 * min(low):.1f} %. (The lifetimes of the paper's Fig. 5 may "
            "differ from those found here; this goes for the next two as well.)",
        ),
        Claim(
            "Expiry has the highest success rates of the three.",
            not any(beaten.values()),
            " ".join(
                f"With {name.removeprefix('expired, ')} lifetimes "
                + (f"not at λ = {', '.join(where)}." if where else "at every rate.")
                for name, where in beaten.items()
            ),
        ),
        Claim(
            "For λ > 2 the success rates of expiry decrease suddenly.",
            max(steps) > 2 * max(before),
            f"They fall by at most {100 * max(steps):.1f} points per message/s above λ = 2, and by "
            f"{100 * max(before):.1f} below.",
        ),
        Claim(
            "Overload dropping succeeds 1 to 2 % more often than probabilistic dropping.",
            all(0 < gap < 2.5 for gap in gaps),
            f"By {min(gaps):.1f} to {max(gaps):.1f} points between λ = 0.5 and 7, by the model and "
            "at 7 s sharp, between two capacities. With the largest whole K below 7 s, by "
            f"{min(whole):.1f} to {max(whole):.1f} points as simulated.",
        ),
    ]


def _figure_7(rates: Sequence[float], results: dict[str, list[Mechanism]]) -> Report:
    on = ON_S / (ON_S + OFF_S)
    failures, models = [], []
    for rate, run in zip(rates, results["overloaded"], strict=True):
        # The input queue, which is never away, overflows in ON and OFF periods alike.
        entry = MM1K(rate, INPUT, int(run.parameter))
        at_output = run.measured.fraction(Outcome.OVERFLOW) - entry.loss
        failures.append(entry.loss + at_output / on)
        output = LimitedOnOffQueue(
            entry.throughput, SERVICE, ON_S, OFF_S, capacity=int(run.parameter)
        )
        models.append(entry.loss + (1 - entry.loss) * output.loss_while_on)
    quiet = [
        run.measured.fraction(Outcome.OVERFLOW) + run.measured.fraction(Outcome.EXPIRED)
        for run in results["probabilistic"]
    ]
    table = Table(
        "Messages of ON periods that overload dropping loses (%)",
        ["λ (1/s)", "K", "simulated", "model", "probabilistic"],
        [
            [rate, int(run.parameter), 100 * failed, 100 * model, 100 * none]
            for rate, run, failed, model, none in zip(
                rates, results["overloaded"], failures, models, quiet, strict=True
            )
        ],
    )

    def draw(axes: Axes) -> None:
        axes.plot(rates, [100 * model for model in models], label="overloaded, model")
        axes.plot(rates, [100 * f for f in failures], "o", label="overloaded, simulated")
        axes.plot(rates, [100 * q for q in quiet], "s", label="probabilistic, simulated")
        axes.set(xlabel="arrival rate λ (1/s)", ylabel="lost while connected (%)")
        axes.legend()

    claims = [
        Claim(
            "Overload dropping loses up to 6 % while the subscriber is connected.",
            0.05 < max(failures) < 0.075,
            f"Up to {100 * max(failures):.1f} %, at λ = {rates[-1]:g}.",
        ),
        Claim(
            "Probabilistic dropping loses nothing while the subscriber is connected.",
            max(quiet) == 0,
            "By construction, and in every run.",
        ),
    ]
    return Report("onoff-fig7", "ON/OFF Fig. 7: failures while connected", [table], claims, draw)


def reports(effort: Effort = USUAL, tell: Tell = silently) -> Iterator[Report]:
    yield figure_4(effort, tell)
    yield from figures_6_and_7(effort, tell=tell)
