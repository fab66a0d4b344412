"""What the model expects of every application, under a policy."""

from __future__ import annotations

from headgate.contract import Application, Policy, Requirement
from headgate.control.planning.judging import arrives, strain
from headgate.control.planning.plan import Expected, Outlook
from headgate.control.planning.problem import Problem, asked_for, factors_of, slower
from headgate.model import FlowTable, Model, Prediction, Scenario, Settings


def outlooks(problem: Problem, policy: Policy) -> tuple[Outlook, ...]:
    """What the model expects for every application, before and after."""
    needs = {a.name: a for a in problem.scenario.applications}
    percentiles = sorted({a.requirement.percentile for a in needs.values() if a.requirement})
    model = Model(problem.scenario, percentiles)

    def under(policy: Policy, settings: Settings) -> Prediction:
        slow = factors_of(problem.scenario, policy)
        used = Model(slower(problem.scenario, slow), percentiles) if slow else model
        return used.predict(bounded(model.table, settings))

    now = under(problem.policy, problem.in_force)
    then = under(policy, model.table.settings(policy))
    members: dict[str, list[int]] = {}
    for number, flow in enumerate(model.table.flows):
        members.setdefault(flow.needs or "-", []).append(number)
    shown = []
    for name, flows in members.items():
        application = needs.get(name)
        requirement = None if application is None else _asked(application, model.table, flows)
        shown.append(
            Outlook(
                name,
                (application.category if application else None) or "-",
                len(flows),
                1.0 if application is None else application.weight,
                requirement,
                expected(model, now, flows, requirement),
                expected(model, then, flows, requirement),
            )
        )
    return tuple(shown)


def expected(
    model: Model, prediction: Prediction, flows: list[int], requirement: Requirement | None
) -> Expected:
    """The worst that the flows of one application can expect."""
    busy = [flow for flow in flows if model.offered[flow] > 0] or flows
    percentile = None
    met = True
    if requirement is not None:
        if requirement.response_ms is not None:
            values = prediction.percentiles[requirement.percentile]
            percentile = 1000 * float(values[busy].max())
        met = strain(requirement, prediction, model.offered, flows) <= 1 + 1e-6 and arrives(
            requirement, prediction, model.offered, flows
        )
    return Expected(
        1000 * float(prediction.mean[busy].max()),
        percentile,
        float(prediction.loss[busy].max()),
        float(prediction.throughput[flows].sum()),
        met,
    )


def bounded(table: FlowTable, settings: Settings) -> Settings:
    """Drop rates as the broker takes them: never above what an application tolerates."""
    drop = settings.drop.copy()
    tolerated = {a.name: a.requirement.loss for a in table.scenario.applications if a.requirement}
    for number, flow in enumerate(table.flows):
        if flow.needs in tolerated:
            drop[number] = min(drop[number], tolerated[flow.needs])
    return settings.with_drop(drop)


def expectations(scenario: Scenario, policy: Policy) -> dict[str, Expected]:
    """By application that asked for something: what it will have."""
    known = {a.name: a for a in scenario.applications}
    percentiles = sorted({a.requirement.percentile for a in known.values() if a.requirement})
    model = Model(slower(scenario, factors_of(scenario, policy)), percentiles)
    if not len(model.table):
        return {}
    prediction = model.predict(bounded(model.table, model.table.settings(policy)))
    members: dict[str, list[int]] = {}
    for number, flow in enumerate(model.table.flows):
        if flow.needs in known:
            members.setdefault(flow.needs, []).append(number)
    needs = {name: _asked(known[name], model.table, flows) for name, flows in members.items()}
    return {
        name: expected(model, prediction, members[name], requirement)
        for name, requirement in needs.items()
        if requirement is not None
    }


def _asked(application: Application, table: FlowTable, flows: list[int]) -> Requirement | None:
    """What is asked of flows that all come and go, or do not; mixed ones are judged as the rest."""
    clients = table.scenario.clients
    comes = all(clients[table.client_of[flow]].connectivity is not None for flow in flows)
    return asked_for(application, comes)


def broken(scenario: Scenario, policy: Policy) -> set[str]:
    """Applications whose requirement the model says is not kept."""
    return {name for name, what in expectations(scenario, policy).items() if not what.met}
