"""The model's answer to each point of a sweep, beside the simulator's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame

from headgate.contract import PolicyRule
from headgate.model import FlowTable, Model, Scenario
from headgate.pipeline.studying import COMPARED, columns_of
from headgate.pipeline.sweeping import varied

NEEDED = "point, load, link_rate, policy, category, delivered_rate, mean_ms, p99_ms"


def link_of_category(scenario: Scenario) -> dict[str, int]:
    """The link behind which all flows of a category are; the others cannot be told apart."""
    places: dict[str, set[int | None]] = {}
    for flow in FlowTable(scenario).flows:
        if flow.category is not None:
            places.setdefault(flow.category, set()).add(flow.link)
    return {
        category: link
        for category, found in places.items()
        if len(found) == 1 and (link := next(iter(found))) is not None
    }


def modelled(dataset: DataFrame, scenario: Scenario) -> DataFrame:
    """Rows of a sweep of `scenario`, with what the model says of them."""
    rows = dataset.selectExpr(*NEEDED.split(", "))
    return rows.mapInPandas(modelling(scenario), COMPARED)


def modelling(scenario: Scenario) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """A function for Spark's workers."""

    def run(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        links = link_of_category(scenario)
        for batch in batches:
            known = batch[batch["category"].isin(links)]
            found = [
                answer
                for _, rows in known.groupby("point")
                for answer in model_point(scenario, links, rows)
            ]
            yield pd.DataFrame(found, columns=columns_of(COMPARED))

    return run


def model_point(
    scenario: Scenario, links: dict[str, int], rows: pd.DataFrame
) -> list[dict[str, object]]:
    """One prediction, for the categories of one point."""
    first = rows.iloc[0]
    situation = varied(scenario, first["load"], first["link_rate"])
    model = Model(situation, (99.0,))
    answer = model.predict([PolicyRule(**rule) for rule in first["policy"]])
    service = own_times(model)
    results: list[dict[str, object]] = []
    for row in rows.to_dict("records"):
        flows = [n for n, f in enumerate(model.table.flows) if f.category == row["category"]]
        share = answer.throughput[flows]
        if not share.any():
            continue
        share = share / share.sum()
        link = links[row["category"]]
        results.append(
            {
                "link": situation.links[link].name,
                "category": row["category"],
                "start": None,
                "end": None,
                "point": row["point"],
                "load": float(answer.utilisation[link]),
                "messages": row["delivered_rate"],
                "mean_ms": row["mean_ms"],
                "p99_ms": row["p99_ms"],
                "service_ms": 1e3 * float(service[flows] @ share),
                "model_mean_ms": 1e3 * float(answer.mean[flows] @ share),
                "model_p99_ms": 1e3 * float(answer.percentiles[99.0][flows] @ share),
            }
        )
    return results


def own_times(model: Model) -> np.ndarray:
    """Seconds that a packet of each flow takes on its link, on average."""
    table, scenario = model.table, model.scenario
    rate = np.array([topic.mean_rate for topic in scenario.topics])[table.stream_topic]
    size = np.array([topic.size_distribution.mean for topic in scenario.topics])
    bits = 8 * (size[table.stream_topic] + scenario.overhead)
    flows = len(table)
    total = np.bincount(table.stream_flow, rate, flows)
    mean = np.bincount(table.stream_flow, rate * bits, flows) / np.where(total > 0, total, 1)
    speed = np.array(
        [
            np.inf if flow.link is None else float(scenario.links[flow.link].rate or np.inf)
            for flow in table.flows
        ]
    )
    return np.asarray(mean / speed)
