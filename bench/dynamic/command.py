"""`python -m bench dynamic`: ten minutes of changes, with planning off, reactive and proactive.

PlanEMQX's devices and applications on a live broker behind a `tc tbf` link. The load doubles and
falls again, the link halves (the broker is told so, as an operator would), applications join, and
an emergency category appears and goes. What counts is the time in which requirements are broken, by
what the receivers measured. `--compress` makes all of it shorter, the response times asked for too.
A run counts if the driver itself was in time, as in `bench planemqx`; others are told, and no more.
"""

import argparse
import json
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

from bench import network
from bench.brokers import REPOSITORY, BenchError
from bench.congestion.command import words
from bench.congestion.report import finite
from bench.congestion.workload import Workload, planemqx
from bench.dynamic import contenders
from bench.dynamic.contenders import COMPARED, Planning
from bench.dynamic.judging import Judged, judge, reasons
from bench.dynamic.playing import Played, play
from bench.dynamic.scenario import STORY, Story
from bench.dynamic.simulated import Outcome, simulate
from bench.figures import Times
from bench.network import MEGABIT, Line
from bench.planemqx.measuring import IN_TIME_MS
from bench.report import aligned, machine

RESULTS = REPOSITORY / "bench" / "results"
SAVED_PLOT = REPOSITORY / "docs" / "img" / "dynamic.png"
GOAL = 10.0
"""How many times shorter the time in violation has to be than with planning off."""

_EXAMPLES = """examples (as root):
  python -m bench dynamic
  python -m bench dynamic --compress 1
  python -m bench dynamic --planning reactive,proactive --seed 2 --json out.json --plot out.png
  python -m bench dynamic --simulate 12                           (not as root)
"""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its options."""
    parser = commands.add_parser(
        "dynamic",
        help="requirements kept over time while load, link and applications change (needs root)",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--planning", default=",".join(COMPARED), metavar="P,…", help=f"of {', '.join(Planning)}")
    add("--compress", type=float, default=3.5, metavar="X", help="times as fast (default 3.5)")
    add("--until", type=float, metavar="S", help="end after so many of the ten minutes' seconds")
    add("--congestion-control", default="cubic", metavar="NAME", help="of TCP (default cubic)")
    add("--seed", type=int, default=1, help="of the devices' phases")
    add("--simulate", type=int, metavar="N", help="simulate the link, N times: no root, no machine")
    add("--json", type=Path, metavar="FILE", help="write every figure")
    add("--plot", type=Path, metavar="FILE", help="draw it")
    add("--save", action="store_true", help="keep the result in bench/results, the plot in docs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play it once for each, report, keep."""
    if options.compress <= 0:
        raise BenchError("--compress: expected a number above 0")
    chosen = words(options.planning, "--planning", Planning)
    story = STORY.until(options.until) if options.until else STORY
    story = story.compressed(options.compress)
    workload = story.workload(planemqx())
    if options.simulate:
        return _simulate(options, chosen, story, workload)
    line = Line(story.rate(0.0), congestion_control=options.congestion_control)
    runs: list[dict[str, Any]] = []
    with network.namespace() as place:
        network.hurry()
        for planning in chosen:
            broker = contenders.broker(planning, story, workload, place.near)
            played = play(broker, story, workload, line, place, options.seed)
            judged = judge(story, workload, played)
            runs.append(_document(planning, broker.version, played, judged))
            said = f"{planning}: {judged.broken()} of {judged.judged()} application-seconds broken"
            said += "" if runs[-1]["counts"] else ", does not count: the driver was late"
            print(said, file=sys.stderr, flush=True)
    document: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "compress": options.compress,
        "seed": options.seed,
        "link": {"burst": line.burst, "congestion_control": line.congestion_control},
        "story": asdict(story),
        "runs": runs,
    }
    print(report(document))
    _keep(options, finite(document))
    return 0


def _simulate(
    options: argparse.Namespace, chosen: list[Planning], story: Story, workload: Workload
) -> int:
    """Many runs in virtual time."""
    found: list[Outcome] = []
    for seed in range(options.seed, options.seed + options.simulate):
        for planning in chosen:
            found.append(simulate(planning, story, workload, seed))
            said = f"{seed}, {planning}: {found[-1].broken} application-seconds broken"
            print(said, file=sys.stderr, flush=True)
    names = list(found[0].broken_by_category)
    lines = [["planning", "in violation: mean", "least", "most", *names, "lost", "policies"]]
    for planning in chosen:
        runs = [one for one in found if one.planning == planning]
        broken = [one.broken for one in runs]
        lines.append(
            [
                str(planning),
                *(f"{fmean(broken):.1f} s", str(min(broken)), str(max(broken))),
                *(f"{fmean(one.broken_by_category[name] for one in runs):.1f}" for name in names),
                f"{fmean(one.lost / one.published for one in runs):.1%}",
                f"{fmean(one.policies for one in runs):.1f}",
            ]
        )
    print(aligned(lines, 1))
    document = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "compress": options.compress,
        "story": asdict(story),
        "runs": [asdict(one) for one in found],
    }
    files = [options.json] if options.json else []
    if options.save:
        files.append(RESULTS / f"{date.today().isoformat()}-dynamic-simulated.json")
    for file in files:
        file.write_text(json.dumps(document, ensure_ascii=False) + "\n")
        print(f"written: {file}", file=sys.stderr)
    return 0


def _document(planning: Planning, version: str, played: Played, judged: Judged) -> dict[str, Any]:
    first = played.published.start / 1e9 + played.offset
    late = Times.of([late / 1e9 for late in played.published.late])
    categories = dict.fromkeys(judged.categories.values())
    return {
        "planning": str(planning),
        "version": version,
        "driver_late": asdict(late),
        "counts": late.p99 < IN_TIME_MS,
        "used": asdict(played.used),
        "judged": judged.judged(),
        "broken": judged.broken(),
        "broken_by_weight": judged.broken_by_weight(),
        "broken_by_category": {name: judged.broken(name) for name in categories},
        "seconds_with_any": judged.with_any(),
        "attainment": judged.attainment(),
        "applications": {
            name: {
                "category": judged.categories[name],
                "mean_ms": [None if one is None else one.mean_ms for one in timeline],
                "slow": [int(one is not None and one.slow) for one in timeline],
                "thinned": [int(one is not None and one.thinned) for one in timeline],
                "lost": sum(one.lost for one in timeline if one is not None),
                "published": sum(one.published for one in timeline if one is not None),
            }
            for name, timeline in judged.seconds.items()
        },
        "events": dict(reasons(played)),
        "decisions": [
            {
                "at": round(record.time - first, 2),
                "event": str(record.event),
                "why": record.why,
                "steps": record.steps,
                "conflicts": record.conflicts,
                "broken": record.broken,
                "seconds": record.seconds,
            }
            for record in played.decisions
        ],
    }


def report(document: dict[str, Any]) -> str:
    """A line for each, and the goals."""
    runs = document["runs"]
    names = sorted({name for run in runs for name in run["broken_by_category"]})
    lines = [
        [
            *("planning", "in violation", "of", "by weight", "any, s", "changes"),
            *names,
            "driver late p99",
        ]
    ]
    lines += [
        [
            run["planning"],
            f"{run['broken']:,} s",
            f"{run['judged']:,}",
            f"{run['broken_by_weight']:,.0f}",
            str(run["seconds_with_any"]),
            str(run["events"].get("applied", 0) + run["events"].get("rolled back", 0)),
            *(str(run["broken_by_category"].get(name, 0)) for name in names),
            f"{run['driver_late']['p99']:.2f} ms" + ("" if counts(run) else " ✗"),
        ]
        for run in runs
    ]
    told = [aligned(lines, 1), ""]
    found = {run["planning"]: run["broken"] for run in runs if counts(run)}
    if not all(map(counts, runs)):
        told.append("✗: does not count, because the driver was late")
    for planning in (Planning.REACTIVE, Planning.PROACTIVE):
        if planning in found and Planning.OFF in found:
            ratio = found[Planning.OFF] / max(1, found[planning])
            mark = "✓" if ratio >= GOAL else "✗"
            told.append(
                f"{mark} {planning}: time in violation {ratio:.1f} × shorter (goal {GOAL:g})"
            )
    if Planning.REACTIVE in found and Planning.PROACTIVE in found:
        mark = "✓" if found[Planning.PROACTIVE] < found[Planning.REACTIVE] else "✗"
        told.append(f"{mark} proactive shorter than reactive")
    return "\n".join(told)


def counts(run: dict[str, Any]) -> bool:
    """Whether the machine kept up; earlier files do not say."""
    return bool(run.get("counts", run["driver_late"]["p99"] < IN_TIME_MS))


def offered(story: Story, moment: float) -> float:
    """Mbit/s that all who are there ask for on the link, with headers."""
    workload = story.workload(planemqx())
    there = {g.name: g.comes <= moment < g.goes for g in story.guests}
    bits = sum(
        workload.devices[flow.device].rate * workload.devices[flow.device].wire_size * 8
        for flow in workload.subscriptions
        if there.get(flow.client, True)
    )
    return story.load(moment) * bits / MEGABIT


def _keep(options: argparse.Namespace, document: dict[str, Any]) -> None:
    files = [options.json] if options.json else []
    plots = [options.plot] if options.plot else []
    if options.save:
        files.append(RESULTS / f"{date.today().isoformat()}-dynamic.json")
        plots.append(SAVED_PLOT)
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, ensure_ascii=False) + "\n")
        print(f"written: {file}", file=sys.stderr)
    for file in plots:
        from bench.dynamic.plot import draw  # noqa: PLC0415  (matplotlib takes a second)

        file.parent.mkdir(parents=True, exist_ok=True)
        draw(document, file)
        print(f"written: {file}", file=sys.stderr)
