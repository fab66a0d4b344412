"""PDDL: what is written, what engines make of it, and the check of their plans."""

from __future__ import annotations

import shlex
import time
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from control.instances import random_problem
from control.test_planning import site
from headgate.cli.main import commands
from headgate.control.planning import Decision, LinkProblem, Problem
from headgate.control.planning.exact import Search
from headgate.control.planning.judging import judge
from headgate.control.planning.pddl import engines
from headgate.control.planning.pddl.engines import Outcome, Status, parse, run
from headgate.control.planning.pddl.planner import decode, first_encoding, solve, told
from headgate.control.planning.pddl.validating import validate
from headgate.control.planning.pddl.writing import Loads, waiting
from headgate.errors import ConfigurationError
from headgate.model import Distribution, PriorityMG1


@cache
def feasible_problems(count: int) -> list[LinkProblem]:
    """Links on which the exact planner finds a plan."""
    found = []
    for seed in range(1000):
        problem = random_problem(seed)
        best = Search(problem, time.monotonic() + 60).cheapest(range(len(problem.groups)))
        if best is not None:
            found.append(problem)
        if len(found) == count:
            break
    return found


def plan_of(problem: LinkProblem, decision: Decision, encoding) -> list[list[str]]:  # type: ignore[no-untyped-def]
    """The steps that a planner would write for a decision without drops."""
    names = encoding.groups
    steps = [
        [f"configure-l{k}", name, "d0"] for name, k in zip(names, decision.levels, strict=True)
    ]
    return steps + [[f"assess-l{k}", n] for n, k in zip(names, decision.levels, strict=True)]


def test_the_formula_is_cobhams() -> None:
    """Where every publication is one copy, waiting is that of the non-preemptive priority queue."""
    rates, sizes = (20.0, 30.0), (1000.0, 500.0)
    seconds = [size * 8 / 1e6 for size in sizes]
    queue = PriorityMG1(rates, [Distribution.constant(s) for s in seconds])
    loads = Loads(
        tuple(r * s for r, s in zip(rates, seconds, strict=True)),
        tuple(1000 * r * s * s / 2 for r, s in zip(rates, seconds, strict=True)),
        0.0,
    )
    for level in (0, 1):
        ours = waiting(loads, Decision((0, 1), (0.0, 0.0)), level)
        assert ours == pytest.approx(1000 * queue.mean_wait(level))


@pytest.mark.parametrize("case", range(8))
def test_enhsp_finds_plans_that_the_model_accepts(case: int) -> None:
    problem = feasible_problems(8)[case]
    solved = solve(problem, engines.ENHSP, time.monotonic() + 60)
    assert judge(problem, solved.decision).all_met
    encoding = solved.encoding
    assert validate(encoding.domain, encoding.problem, solved.steps).valid
    for group, drop in zip(problem.groups, solved.decision.drops, strict=True):
        assert drop <= group.most_drop + 1e-9


def test_the_validator_takes_no_plan_on_trust() -> None:
    (problem,) = feasible_problems(1)
    encoding = first_encoding(problem)
    good = run(engines.ENHSP, encoding, 60)
    assert good.status is Status.SOLVED
    steps = list(good.steps)

    def why(changed: list[tuple[str, ...]]) -> str:
        return validate(encoding.domain, encoding.problem, changed).why

    assert why(steps) == ""
    assert "is not reached" in why(steps[:-1])  # somebody was not assessed
    assert "not possible" in why([steps[0], steps[0]])  # decided twice
    assert "not possible" in why(steps[::-1])  # assessed before all was decided
    assert "no action" in why([("fly", "away")])
    assert "arguments" in why([steps[0][:2]])


def test_effects_are_joint() -> None:
    """The same group, at the same level, misses its goal when another goes before it."""
    problem = tight_problem()
    encoding = first_encoding(problem)
    first = plan_of(problem, Decision((0, 1), (0.0, 0.0)), encoding)
    last = plan_of(problem, Decision((1, 0), (0.0, 0.0)), encoding)
    assert validate(encoding.domain, encoding.problem, first).valid
    verdict = validate(encoding.domain, encoding.problem, last)
    assert not verdict.valid
    assert encoding.groups[0] in verdict.why


def tight_problem() -> LinkProblem:
    return Problem.of(site(mean_ms=20.0)).links[0]


def test_both_ways_to_write_a_plan_are_read() -> None:
    enhsp = "Found Plan:\n0.0: (configure-l0 rt d1)\n1.0: (assess-l0 rt)\n\nPlan-Length:2\n"
    ff = """
ff: found legal plan as follows

step    0: CONFIGURE-L0 RT D1
        1: ASSESS-L0 RT

time spent:    0.00 seconds instantiating 4 easy
"""
    expected = (("configure-l0", "rt", "d1"), ("assess-l0", "rt"))
    assert parse(enhsp) == expected
    assert parse(ff) == expected


def test_a_users_own_command_is_an_engine() -> None:
    problem = tight_problem()
    command = shlex.join(engines._command(engines.ENHSP, Path("{domain}"), Path("{problem}")))
    solved = solve(problem, command, time.monotonic() + 60)
    assert judge(problem, solved.decision).all_met


def test_an_engine_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = tmp_path / "engine"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! $$ > {pids}\nwait\n")
    script.chmod(0o755)
    encoding = first_encoding(tight_problem())
    assert run(f"{script} {{domain}} {{problem}}", encoding, 2.0) == Outcome(Status.TIMEOUT)
    for pid in pids.read_text().split():
        deadline = time.monotonic() + 10
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not alive(pid)


def alive(pid: str) -> bool:
    """Gone, or a zombie that nobody has asked for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_engine_that_fails_is_a_value() -> None:
    encoding = first_encoding(tight_problem())
    outcome = run("sh -c 'echo segmentation fault; exit 139' {domain} {problem}", encoding, 10)
    assert outcome.status is Status.FAILED
    assert "segmentation fault" in outcome.said


def test_engines_that_do_not_exist_get_a_sentence() -> None:
    encoding = first_encoding(tight_problem())
    with pytest.raises(ConfigurationError, match="expected exact, enhsp, lpg, or a command"):
        run("fastest", encoding, 1)
    with pytest.raises(ConfigurationError, match="there is no command 'no-such-planner'"):
        run("no-such-planner {domain} {problem}", encoding, 1)


def test_plans_are_decoded() -> None:
    problem = tight_problem()
    encoding = first_encoding(problem)
    alarm, archive = encoding.groups
    steps = (("configure-l1", archive, "d2"), ("configure-l0", alarm, "d0"))
    decision = decode(problem, encoding, Outcome(Status.SOLVED, steps))
    assert decision == Decision((0, 1), (0.0, pytest.approx(0.25)))  # half of what it tolerates


def test_the_command_writes_what_any_planner_can_read(tmp_path: Path) -> None:
    done = CliRunner().invoke(commands, ["plan", "planemqx", "--pddl", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    problem = (tmp_path / "out" / "link-0-problem.pddl").read_text()
    assert "(<= (response rt) 1)" in problem
    assert "(:metric minimize (cost))" in problem


@pytest.mark.parametrize("case", range(4))
def test_lpg_plans_in_sums_and_the_model_accepts(case: int) -> None:
    problem = feasible_problems(8)[case]
    found = Search(problem, time.monotonic() + 20).cheapest(range(len(problem.groups)))
    assert found is not None
    solved = solve(problem, engines.LPG, time.monotonic() + 60, exact=found.decision)
    assert judge(problem, solved.decision).all_met
    text = solved.encoding.domain + solved.encoding.problem
    assert "(*" not in text
    assert "(/" not in text
    assert validate(solved.encoding.domain, solved.encoding.problem, solved.steps).valid


def test_the_style_follows_the_engine() -> None:
    for engine in ("lpg", "ff -o {domain} -f {problem}", "/opt/x/metric-ff {domain} {problem}"):
        assert engines.is_linear(engine)
    for engine in ("enhsp", "java -jar enhsp.jar {domain} {problem}"):
        assert not engines.is_linear(engine)


def test_of_several_plans_the_last_counts() -> None:
    lpg = """
   Time: (ACTION) [action Duration; action Cost]
 0.0000: (CONFIGURE-L0 RT D2) [D:1.00; C:0.10]
 1.0000: (ASSESS-L0 RT) [D:1.00; C:0.10]

Solution number: 2
 0.0000: (CONFIGURE-L0 RT D1) [D:1.00; C:0.10]
 1.0000: (ASSESS-L0 RT) [D:1.00; C:0.10]
"""
    assert parse(lpg) == (("configure-l0", "rt", "d1"), ("assess-l0", "rt"))


def test_a_plan_is_written_as_steps_that_the_validator_accepts() -> None:
    for problem in feasible_problems(8):
        found = Search(problem, time.monotonic() + 20).cheapest(range(len(problem.groups)))
        assert found is not None
        written = told(problem, found.decision)
        assert written.plan
        assert written.valid
