"""Message records of a simulated link: its rate, overhead and arrivals are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headgate.contract import PolicyRule
from headgate.contract.records import MESSAGES
from headgate.model import Scenario
from headgate.model.simulation import Outcome
from headgate.model.simulation.of_scenario import simulate_scenario
from headgate.pipeline.records import spark_schema
from headgate.server.recorder.tables import ARROW_SCHEMAS

from .recording import NOON


def recorded(
    scenario: Scenario,
    policy: Sequence[PolicyRule],
    seconds: float,
    seed: int = 1,
    after: float = 0.0,
) -> pd.DataFrame:
    """What a broker would have recorded, had its link been the scenario's; `after` noon."""
    result = simulate_scenario(
        scenario,
        policy,
        duration=seconds,
        warmup=0.0,
        replications=1,
        seed=seed,
        workers=1,
        records=True,
    )
    kept = result.measurement.replications[0].records
    assert kept is not None
    kept = kept[kept["outcome"] == Outcome.DELIVERED.value]
    kept = kept[np.argsort(kept["left"], kind="stable")]
    flows = result.table.flows
    settings = result.table.settings(policy)
    flow = result.flow_of[kept["stream"]]

    def per_flow(values: list[str]) -> np.ndarray:
        return np.array(values)[flow]

    def moments(column: str) -> pd.Series:
        micros = np.round(1e6 * (kept[column] + after)).astype("int64")
        return pd.Series(pd.Timestamp(NOON) + pd.to_timedelta(micros, unit="us"))

    return pd.DataFrame(
        {
            "broker": f"run-{seed}-{after:g}",
            "sequence": np.arange(len(kept)),
            "at": moments("left"),
            "arrived": moments("created"),
            "client": per_flow([one.client for one in flows]),
            "filter": per_flow([one.filter for one in flows]),
            "application": per_flow([one.application or "" for one in flows]),
            "category": per_flow([one.category or "" for one in flows]),
            "link": per_flow(
                ["" if one.link is None else scenario.links[one.link].name for one in flows]
            ),
            "priority": np.asarray(settings.priority)[flow],
            "topic": per_flow([one.filter for one in flows]),
            "class": "normal",
            "qos": 0,
            "retained": False,
            "outcome": "sent",
            "reason": "",
            "messages": 1,
            "bytes": kept["size"].astype("int64"),
            "waited_ms": 1e3 * (kept["left"] - kept["created"]),
            "acknowledged_ms": None,
            "weight": 1.0,
        }
    )


def frame(spark: SparkSession, folder: Path, records: pd.DataFrame) -> DataFrame:
    """Through a file: what Spark gets in memory becomes part of its plan, and of every task."""
    file = folder / f"{uuid4()}.parquet"
    pq.write_table(table(records), file)
    return spark.read.schema(spark_schema(MESSAGES)).parquet(str(file))


def table(records: pd.DataFrame) -> pa.Table:
    """As the recorder has it: to go through Arrow is a hundred times faster than row by row."""
    schema = ARROW_SCHEMAS[MESSAGES.kind]
    return pa.Table.from_pandas(records, schema=schema, preserve_index=False)
