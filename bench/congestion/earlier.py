"""Results of earlier runs, read back from what `--json` wrote: one report of several runs."""

import json
import math
from pathlib import Path
from typing import Any

from bench.brokers import BenchError
from bench.congestion.evaluating import Experience
from bench.congestion.measuring import Result
from bench.figures import Times
from bench.usage import Used


def read(path: Path) -> tuple[list[Result], dict[str, str]]:
    """What a run measured, and the brokers' versions."""
    try:
        document = json.loads(path.read_text())
        seconds = document["conditions"]["seconds"]
        results = [_result(one, seconds) for one in document["results"]]
        return results, dict(document["brokers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path} holds no result of `bench congestion`: {error}") from None


def _result(stored: dict[str, Any], seconds: float) -> Result:
    given = {"seconds": seconds, **stored}
    given["experiences"] = {
        category: _experience(one) for category, one in stored["experiences"].items()
    }
    given["driver_late"] = Times.read(stored["driver_late"])
    given["used"] = Used(**stored["used"])
    return Result(**given)


def _experience(stored: dict[str, Any]) -> Experience:
    given = dict(stored)
    given["response"] = Times.read(stored["response"])
    given["ideal"] = Times.read(stored["ideal"]) if stored["ideal"] else None
    if stored["broker_mean"] is None:
        given["broker_mean"] = math.nan
    return Experience(**given)
