"""Every page does what it says: its commands and programs run, in order, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import AHEAD, ROOT, Block, blocks, pages
from docs.stage import Stage
from headgate.config import parse
from headgate.experiments import scenarios

RUNNING = [
    pytest.param(page, marks=pytest.mark.xfail(strict=True, reason=AHEAD[page.name]))
    if page.name in AHEAD
    else page
    for page in pages()
    if any(block.language in ("sh", "python") and block.runs for block in blocks(page))
]
YAML = [block for page in pages() for block in blocks(page) if block.language == "yaml"]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RUNNING, ids=name)
def test_a_page_runs_from_top_to_bottom(page: Path, stage: Stage) -> None:
    for block in blocks(page):
        if block.runs:
            stage.perform(block)
    if stage.left_out:
        pytest.skip("all but: " + "; ".join(stage.left_out))


def test_the_pages_that_show_how_to_use_it_are_among_them() -> None:
    """Against a pattern that no longer finds the blocks."""
    expected = {"README.md", "docs/control.md", "docs/flows.md", "docs/hooks.md"}
    expected |= {"docs/operations.md", "docs/security.md"}
    assert expected <= {name(page) for page in RUNNING if isinstance(page, Path)}


@pytest.mark.parametrize("block", YAML, ids=str)
def test_every_configuration_and_scenario_loads(block: Block) -> None:
    if block.text.startswith("topics:"):
        assert scenarios.parse(block.text)
    elif block.text.startswith("- "):
        assert parse("policy:\n" + block.text).policy
    else:
        assert parse(block.text)
