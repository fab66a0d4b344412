"""What pages name exists: files, functions, commands, topics, metrics, fields."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import msgspec
import pytest
from broker_process import COMMAND

from docs.pages import AHEAD, ROOT, SOURCE, blocks, codes, pages, prose, section
from headgate.config import Configuration, Limits
from headgate.contract import FlowSnapshot, LinkSnapshot, PolicyRule, Snapshot
from headgate.contract.policy import SETTINGS
from headgate.core import control
from headgate.core.broker import Broker
from headgate.core.connecting import CLAIMS
from headgate.core.hooks import Hook
from headgate.core.journal import NoJournal
from headgate.core.reasons import Drop, Wait
from headgate.core.statistics import Statistics
from headgate.server import metrics

ARCHITECTURE = ROOT / "docs" / "architecture.md"
FLOWS = ROOT / "docs" / "flows.md"
OPERATIONS = ROOT / "docs" / "operations.md"
CONTROL = ROOT / "docs" / "control.md"
HOOKS = ROOT / "docs" / "hooks.md"


def table(text: str, heading: str) -> set[str]:
    """The inline codes in the first column of the table whose head begins with `heading`."""
    found = re.search(rf"^ *\| {re.escape(heading)}.*?\n *\|[-| ]+\n((?: *\|.*\n)+)", text, re.M)
    assert found, f"no table {heading!r}"
    return {code for row in found[1].splitlines() for code in codes(row.split("|")[1])}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{name(page)}: {target}"
        assert linked.is_relative_to(ROOT), f"{name(page)}: {target}"
        if anchor:
            assert anchor in anchors(linked), f"{name(page)}: {target}"


@pytest.mark.parametrize("picture", sorted(ROOT.glob("docs/img/*.svg")), ids=name)
def test_pictures_read_in_dark_mode_and_need_nothing_else(picture: Path) -> None:
    text = picture.read_text()
    root = ElementTree.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme: dark" in text
    assert "href" not in text.replace("xlink", "")


# Commands


@cache
def help_of(command: str) -> str:
    done = subprocess.run(
        [COMMAND, *command.split(), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"headgate {command} --help: {done.stderr}"
    return done.stdout


def shown_commands() -> set[tuple[str, str, str]]:
    """Page, command and what follows it, in blocks and in the text."""
    found = set()
    for page in pages():
        if page.name in AHEAD:
            continue
        texts = [block.text for block in blocks(page) if block.language in ("sh", "text", "ini")]
        for text in [*texts, *codes(prose(page))]:
            for line in text.splitlines():
                for command, rest in re.findall(r"(?:^|[/|&] ?)headgate ([a-z]+)\b(.*)", line):
                    if command != "ready":  # what the broker says
                        found.add((name(page), command, rest))
    return found


def test_every_command_shown_exists_with_its_options() -> None:
    shown = shown_commands()
    assert {command for _, command, _ in shown} >= {"serve", "check", "passwd"}
    for page, command, rest in shown:
        if command == "pipeline":  # its jobs are commands themselves
            command = f"pipeline {rest.split()[0]}"
        for option in re.findall(r"(?<!\S)--[a-z-]+", rest.partition("  #")[0]):
            assert option in help_of(command), f"{page}: headgate {command} {option}"


@pytest.mark.parametrize("command", ["serve", "check", "passwd"])
def test_every_command_shows_an_example(command: str) -> None:
    assert re.search(rf"Examples?:\n +headgate {command} ", help_of(command))


def test_every_target_of_make_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.M))
    named = {
        target
        for page in pages()
        for text in [*(block.text for block in blocks(page)), *codes(prose(page))]
        for target in re.findall(r"^make ([a-z]+)", text, re.M)
    }
    assert {"run", "test", "check", "format", "bench"} <= named <= targets


# Architecture


@cache
def definitions(file: Path) -> set[str]:
    """Functions and methods that a module defines, and its classes."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
    return found


def test_the_life_of_a_message_names_what_there_is() -> None:
    """`file.py` and `Class.method()`: in a line, a name belongs to a file of that line."""
    seen = 0
    for line in prose(ARCHITECTURE).splitlines():
        files = [SOURCE / code for code in codes(line) if re.fullmatch(r"(\w+/)+\w+\.py", code)]
        for file in files:
            assert file.exists(), file
        for code in codes(line):
            if code.endswith("()"):
                known = set().union(*(definitions(file) for file in files))
                assert code.removesuffix("()") in known, f"{code} in: {line}"
                seen += 1
    assert seen > 20


def test_the_layers_are_those_that_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = [contract for contract in contracts if contract["type"] == "layers"]
    (shown,) = [
        block.text for block in blocks(ARCHITECTURE) if block.text.startswith("headgate.cli")
    ]
    assert shown.splitlines() == contract["layers"]
    packages = {part for layer in contract["layers"] for part in layer.split(" | ")}
    assert table(ARCHITECTURE.read_text(), "package | is") == {
        package.removeprefix("headgate.") for package in packages
    }


def test_the_compiled_modules_are_all_named() -> None:
    text = section(ARCHITECTURE, "What is compiled")
    shown = {
        f"{package}/{module}"
        for package, modules in re.findall(r"^\| `(\w+)` \| (`.*) \|$", text, re.M)
        for module in codes(modules)
    }
    assert shown == {
        str(file.relative_to(SOURCE).with_suffix("")) for file in SOURCE.rglob("*.pxd")
    }


def test_the_threads_are_all_named() -> None:
    started = {
        thread
        for file in SOURCE.rglob("*.py")
        for thread in re.findall(r'name(?:_prefix)?="(headgate-\w+)"', file.read_text())
    }
    assert started
    assert started == {
        code for code in table(ARCHITECTURE.read_text(), "thread") if code.startswith("headgate-")
    }


# Tables of names


@pytest.fixture
def statistics() -> Statistics:
    class Nobody:
        """Nobody connects in these tests."""

    broker = Broker(Configuration(), Nobody(), NoJournal(), Random(1))  # type: ignore[arg-type]
    return Statistics(broker, 0.0)


def test_the_sys_tree_is_documented(statistics: Statistics) -> None:
    text = section(OPERATIONS, "$SYS")
    shown = {
        f"$SYS/{tree}/{topic}"
        for tree in ("broker", "headgate")
        for topic in table(text, f"below `$SYS/{tree}/`")
    }
    assert shown == {topic for topic, _ in statistics.values(1.0)}


def test_the_metrics_are_documented(statistics: Statistics) -> None:
    page = "".join(metrics.lines(statistics, 1.0))
    assert table(section(OPERATIONS, "Prometheus"), "metric") == set(
        re.findall(r"^# TYPE (\w+)", page, re.M)
    )


def test_what_happens_at_each_limit_is_documented() -> None:
    shown = table(section(OPERATIONS, "Limits"), "limit")
    limits = {field.name for field in msgspec.structs.fields(Limits)}
    in_the_protocol = {"inflight"}  # nobody can go beyond it
    assert shown - {"max_connections"} == limits - in_the_protocol


def test_what_a_reload_takes_up_is_said_of_every_section() -> None:
    text = section(OPERATIONS, "Reload")
    sections = {field.name for field in msgspec.structs.fields(Configuration)}
    assert sections - {"planner"} <= set(codes(text))


def test_the_reasons_are_documented() -> None:
    text = FLOWS.read_text()
    assert table(text, "reason") == {reason.name.lower() for reason in Drop}
    assert table(text, "`waits_for`") == {reason.name.lower() for reason in Wait}


@pytest.mark.parametrize(
    ("heading", "record"),
    [("of the broker", Snapshot), ("of a flow", FlowSnapshot), ("of a link", LinkSnapshot)],
)
def test_the_fields_of_snapshots_are_documented(heading: str, record: type) -> None:
    fields = {field.name for field in msgspec.structs.fields(record)}
    assert table(FLOWS.read_text(), heading) == fields


def test_settings_and_claims_are_documented() -> None:
    text = FLOWS.read_text()
    assert table(text, "setting") == set(SETTINGS)
    assert set(SETTINGS) < {field.name for field in msgspec.structs.fields(PolicyRule)}
    assert table(text, "user property") == set(CLAIMS)


def test_the_commands_of_the_control_channel_are_documented() -> None:
    commands = {
        control.POLICY.decode(),
        control.APPLICATIONS.decode(),
        control.LEASE.decode(),
        control.PLAN.decode(),
    }
    assert table(CONTROL.read_text(), "topic") == commands
    assert control.ANSWERS in CONTROL.read_text()


def test_every_hook_is_documented() -> None:
    hooks = {method for method in vars(Hook) if not method.startswith("_")}
    assert table(HOOKS.read_text(), "method") == hooks
