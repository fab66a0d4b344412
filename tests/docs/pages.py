"""The documentation as data: pages, their code blocks, and what a comment above a block says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headgate"

AHEAD: dict[str, str] = {}
"""Pages that speak of a command before it is there; a test fails as soon as it is."""

_BLOCK = re.compile(
    r"(?:^<!-- (?P<remark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    remark: str
    """The comment directly above it: `broker`, `file: NAME`, `not run: WHY`, or nothing."""

    @property
    def runs(self) -> bool:
        return not self.remark.startswith("not run: ")

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Everything that users and contributors read."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bench" / "README.md"]
    return sorted(found)


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start()) + 1,
            found["language"],
            found["text"],
            found["remark"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _BLOCK.sub("", page.read_text())


def codes(text: str) -> list[str]:
    """The inline code of a text."""
    return re.findall(r"`([^`\n]+)`", text)


def section(page: Path, title: str) -> str:
    """What stands below a heading, up to the next of its level or above."""
    found = re.search(
        rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", page.read_text(), re.M | re.S
    )
    assert found, f"{page.name} has no section {title!r}"
    return found[2]
