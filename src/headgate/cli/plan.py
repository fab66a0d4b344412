"""`headgate plan` and `headgate whatif`"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from headgate.config import Configuration, load
from headgate.config.units import rate
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.control.planning import Plan
    from headgate.control.rehearsal import Rehearsal
    from headgate.model import Scenario

PLAN_EXAMPLE = """
\b
Examples:
  headgate plan planemqx --explain                     the paper's workload, built in
  headgate plan site.yaml --config headgate.yaml       traffic from one file, the rest from another
  headgate plan site.yaml --json --out policy.json     and the policy, ready for $CONTROL
  headgate plan planemqx --engine enhsp --pddl out     by a PDDL planner, and its text
  headgate plan planemqx --simulate                    and rehearse the plan in the simulator
  headgate plan --data-dir data --explain              what the controller measured last
"""
WHATIF_EXAMPLE = """
\b
Examples:
  headgate whatif site.yaml --link floor-2=5Mbit       if the link were slower
  headgate whatif site.yaml --add app.yaml --load 1.5  with one more application and more traffic
  headgate whatif --data-dir data --load 1.5           of what the controller measured last
"""

MOST_LOAD = 1e6
"""Beyond it no link is left whose load means anything, and numbers soon run over."""


def _limit(_context: click.Context, _option: click.Parameter, seconds: float) -> float:
    if not 0 < seconds < math.inf:  # nan neither
        raise ConfigurationError(f"--time-limit {seconds:g}: expected seconds above 0, such as 10")
    return seconds


SCENARIO = click.argument("scenario", required=False)
DATA_DIR = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    help="Without SCENARIO: the broker whose controller measured it.",
)
CONFIG = click.option(
    "--config",
    "source",
    type=click.Path(path_type=Path),
    help="Take applications, categories, links and policy from this configuration.",
)
EXPLAIN = click.option("--explain", is_flag=True, help="Say why the plan is as it is.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
SECONDS = click.option(
    "--time-limit",
    "seconds",
    type=float,
    default=10.0,
    callback=_limit,
    show_default=True,
    help="In seconds.",
)


@click.command(epilog=PLAN_EXAMPLE)
@SCENARIO
@CONFIG
@DATA_DIR
@EXPLAIN
@AS_JSON
@SECONDS
@click.option(
    "--engine",
    default="exact",
    show_default=True,
    help="`exact`, `enhsp`, `lpg`, or a command with {domain} and {problem}.",
)
@click.option(
    "--pddl-style",
    "style",
    type=click.Choice(["auto", "joint", "linear"]),
    default="auto",
    show_default=True,
    help="`linear` is for planners that read sums only, such as Metric-FF; known by name: ff, lpg.",
)
@click.option(
    "--pddl", type=click.Path(path_type=Path), help="Write each link's problem as PDDL here."
)
@click.option("--out", type=click.Path(path_type=Path), help="Write the planned policy as JSON.")
@click.option("--simulate", is_flag=True, help="Rehearse the plan in the simulator as well.")
def plan(
    scenario: str | None,
    source: Path | None,
    data_dir: Path,
    explain: bool,
    as_json: bool,
    seconds: float,
    engine: str,
    style: str,
    pddl: Path | None,
    out: Path | None,
    simulate: bool,
) -> None:
    """Plan priorities and drop rates for SCENARIO, a file or a built-in name; without one, for what
    the controller of a broker planned for last.

    The plan meets every requirement, or it says which ones exclude each other, what would help,
    and what can be had instead.
    """
    loaded = _load(scenario, source, data_dir)
    made = _plan(loaded, seconds, engine, style)
    rehearsal = _rehearse(loaded, made) if simulate else None
    _show(made, explain, as_json, rehearsal)
    try:
        if out is not None:
            out.write_bytes(made.policy.to_json())
        if pddl is not None:
            _write_pddl(loaded, made, pddl, style)
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename}: {error.strerror}") from None


def _write_pddl(scenario: Scenario, made: Plan, folder: Path, style: str) -> None:
    """A domain, a problem, and the plan that was made, for each link."""
    from headgate.control.archive import as_pddl as in_full  # noqa: PLC0415
    from headgate.control.archive import in_sums, write  # noqa: PLC0415

    write(folder, (in_sums if style == "linear" else in_full)(scenario, made.policy))


def _rehearse(scenario: Scenario, made: Plan) -> Rehearsal:
    try:
        from headgate.control.rehearsal import rehearse  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    with click.progressbar(length=1000, label="simulating", file=sys.stderr) as bar:
        return rehearse(
            scenario, made, progress=lambda part: bar.update(int(part * 1000) - bar.pos)
        )


@click.command(epilog=WHATIF_EXAMPLE)
@SCENARIO
@CONFIG
@DATA_DIR
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="NAME=RATE",
    help="Give a link another rate, such as floor-2=5Mbit.",
)
@click.option(
    "--add",
    "additions",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Add the topics, clients and applications of this file.",
)
@click.option("--load", "factor", type=float, default=1.0, help="Multiply all traffic by this.")
@EXPLAIN
@AS_JSON
@SECONDS
def whatif(
    scenario: str | None,
    source: Path | None,
    data_dir: Path,
    links: tuple[str, ...],
    additions: tuple[Path, ...],
    factor: float,
    explain: bool,
    as_json: bool,
    seconds: float,
) -> None:
    """Plan for SCENARIO as it might become: what the policy in force would do, and a new plan.

    Without SCENARIO, for what the controller of a broker planned for last.
    """
    changed = _load(scenario, source, data_dir)
    for change in links:
        changed = _with_link(changed, change)
    for path in additions:
        changed = _with_addition(changed, path)
    if factor != 1.0:
        changed = _with_load(changed, factor)
    _show(_plan(changed, seconds), explain, as_json)


def _plan(scenario: Scenario, seconds: float, engine: str = "exact", style: str = "auto") -> Plan:
    try:
        from headgate.control.planning import plan as make  # noqa: PLC0415
        from headgate.control.planning.pddl.planner import Style  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return make(scenario, seconds=seconds, engine=engine, style=Style(style))


def _show(made: Plan, explain: bool, as_json: bool, rehearsal: Rehearsal | None = None) -> None:
    from headgate.control.planning.report import text  # noqa: PLC0415

    if as_json:
        told = made.to_dict()
        if rehearsal is not None:
            told["simulated"] = {
                "broken": rehearsal.broken,
                "applications": [asdict(one) for one in rehearsal.applications],
            }
        click.echo(json.dumps(told, indent=1, allow_nan=False))
        return
    click.echo(text(made, explain=explain))
    if rehearsal is not None:
        click.echo(f"\n{rehearsal.text()}")


def _load(source: str | None, config: Path | None, data_dir: Path) -> Scenario:
    try:
        from headgate.control.archive import Archive  # noqa: PLC0415
        from headgate.experiments.scenarios import load as load_scenario  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    if source is None:
        measured = Archive(data_dir).last()
        if measured is None:
            raise ConfigurationError(
                f"no controller has planned in {data_dir}: name a SCENARIO, or with --data-dir the "
                "data directory of a broker that has one"
            )
        if config is not None:
            raise ConfigurationError(
                "--config goes with a SCENARIO: what was measured has applications and links"
            )
        return measured
    scenario = load_scenario(source)
    return scenario if config is None else _configured(scenario, load(config))


def _configured(scenario: Scenario, config: Configuration) -> Scenario:
    """The traffic of one, the applications, links and policy of the other."""
    applications = tuple(
        replace(application, requirement=config.requirement_of(application))
        for application in config.applications
    )
    return replace(scenario, applications=applications, links=config.links, policy=config.policy)


def _with_link(scenario: Scenario, change: str) -> Scenario:
    name, _, text = change.partition("=")
    known = [link.name for link in scenario.links]
    if name not in known:
        raise ConfigurationError(
            f"--link {change}: there is no link {name!r}, there are: {', '.join(known) or 'none'}"
        )
    try:
        new = rate(text)
        if new < 1:
            raise ValueError(text)
    except ValueError:
        raise ConfigurationError(
            f"--link {change}: expected NAME=RATE, such as {name}=5Mbit"
        ) from None
    links = tuple(replace(link, rate=new) if link.name == name else link for link in scenario.links)
    return replace(scenario, links=links)


def _with_addition(scenario: Scenario, path: Path) -> Scenario:
    from headgate.experiments.scenarios import load_record  # noqa: PLC0415
    from headgate.model.scenario import Addition  # noqa: PLC0415

    return load_record(Addition, path).to(scenario)


def _with_load(scenario: Scenario, factor: float) -> Scenario:
    if not 0 < factor <= MOST_LOAD:
        raise ConfigurationError(
            f"--load {factor:g}: expected a number above 0, at most {MOST_LOAD:,.0f}, such as 1.5"
        )
    topics = tuple(replace(topic, rate=topic.mean_rate * factor) for topic in scenario.topics)
    return replace(scenario, topics=topics)


def _missing(error: ModuleNotFoundError) -> ConfigurationError:
    return ConfigurationError(f"{error.name} is missing: pip install 'headgate[model,planner]'")
