"""Plans as PDDL, kept beside the history: what was asked and what was decided, for people to read
and for any numeric planner to solve again. The newest `KEPT` plans stay.

What the last of them was made for is kept as a scenario, with the policy that came of it: so that
`headgate whatif` can ask what would be if something were different.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from headgate.contract import LinkSpec, Policy
from headgate.control.planning import Problem
from headgate.control.planning.pddl.planner import Style, Told, first_encoding, told
from headgate.control.planning.problem import factors_of, slower
from headgate.model import Scenario

FOLDER = "planner-pddl"
SCENARIO = "planner-scenario.json"
KEPT = 200
MOST_LINKS = 16
"""Links of one plan that are written; others are left out."""


def as_pddl(scenario: Scenario, policy: Policy) -> Iterator[Told]:
    """Each link's problem, with what a policy decides there."""
    problem = Problem.of(slower(scenario, factors_of(scenario, policy)), policy)
    for link in [link for link in problem.links if link.groups][:MOST_LINKS]:
        yield told(link, link.in_force())


def in_sums(scenario: Scenario, policy: Policy) -> Iterator[Told]:
    """The same for planners that read sums only."""
    problem = Problem.of(slower(scenario, factors_of(scenario, policy)), policy)
    for link in [link for link in problem.links if link.groups][:MOST_LINKS]:
        encoding = first_encoding(link, Style.LINEAR, link.in_force())
        yield Told(link.link.name, encoding.domain, encoding.problem, "", False)


class Archive:
    """Keeps plans in a folder of the data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir / FOLDER
        self.scenario = data_dir / SCENARIO

    def keep(
        self, name: str, scenario: Scenario, policy: Policy, links: Sequence[LinkSpec] = ()
    ) -> None:
        """Write a plan; one that cannot be written does not stop the loop.

        `links` are the configured ones: by their globs those who may come are behind them, too.
        """
        with suppress(OSError):
            self._keep_scenario(scenario, policy, {link.name: link.clients for link in links})
            # Who may not enter the folder sees none of its files, whatever their own modes are.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            write(self.folder / name, as_pddl(scenario, policy), mode=0o600)
            for old in sorted(path for path in self.folder.iterdir() if path.is_dir())[:-KEPT]:
                shutil.rmtree(old, ignore_errors=True)

    def _keep_scenario(
        self, scenario: Scenario, policy: Policy, globs: dict[str, tuple[str, ...]]
    ) -> None:
        whole = msgspec.structs.replace(
            scenario,
            links=tuple(
                msgspec.structs.replace(
                    link, clients=tuple(dict.fromkeys((*link.clients, *globs.get(link.name, ()))))
                )
                for link in scenario.links
            ),
            policy=policy.rules,
        )
        fresh = self.scenario.with_suffix(".new")
        with open(fresh, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(msgspec.json.encode(whole))
        fresh.replace(self.scenario)

    def last(self) -> Scenario | None:
        """What the last plan was made for, with its policy; None if there is none."""
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self.scenario.read_bytes(), type=Scenario)
        return None

    def files(self, name: str) -> list[Path]:
        """Of one plan; none if it is gone."""
        return sorted((self.folder / name).glob("*.pddl")) if name else []


def write(folder: Path, links: Iterator[Told], mode: int = 0o666) -> None:
    """A domain, a problem and, where there is one, a plan for each link."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o777 if mode & 0o077 else 0o700)
    for number, link in enumerate(links):
        remark = "" if link.valid else "; kept by the model, not by the formula of this PDDL\n"
        texts = {"domain": link.domain, "problem": link.problem}
        if link.plan:
            texts["plan"] = link.plan + remark
        for what, text in texts.items():
            path = folder / f"link-{number}-{what}.pddl"
            path.touch(mode=mode)
            path.write_text(text)
