"""docs/model.md is run: its Python, its scenario file, the marks around its reports."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from headgate.errors import ConfigurationError
from headgate.experiments import scenarios
from headgate.experiments.__main__ import write_into
from headgate.experiments.report import Claim, Report, Table
from headgate.model import Model

DOCUMENT = Path(__file__).parents[2] / "docs" / "model.md"


def blocks(language: str) -> list[str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_python_of_the_page_runs() -> None:
    names: dict[str, object] = {}
    printed = io.StringIO()
    assert len(blocks("python")) == 2
    with contextlib.redirect_stdout(printed):
        for block in blocks("python"):
            exec(block, names)
    assert "app1:topic1" in printed.getvalue()
    assert "Feasible(value=0.4168" in printed.getvalue()


def test_the_scenario_of_the_page_is_read_and_predicted() -> None:
    text = next(block for block in blocks("yaml") if "topics:" in block)
    prediction = Model(scenarios.parse(text)).predict()
    assert prediction.stable.all()
    assert len(prediction.mean) == 2


def test_images_of_the_page_exist() -> None:
    images = re.findall(r"!\[.*?\]\((.*?)\)", DOCUMENT.read_text(encoding="utf-8"))
    assert len(images) == 6
    for image in images:
        assert (DOCUMENT.parent / image).is_file()


def test_reports_replace_what_stands_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- reports: begin -->\nold\n<!-- reports: end -->\nz\n")
    table = Table("numbers", ["x", "y"], [[1, 2.5], ["three", None]])
    claims = [Claim("It is so.", True, "Yes."), Claim("And so.", None, "Who knows.")]
    for _ in range(2):  # the same again when it is repeated
        write_into(page, [Report("r", "A report", [table], claims)], tmp_path)
        text = page.read_text()
        assert text.startswith("a\n<!-- reports: begin -->\n\n### A report")
        assert text.endswith("<!-- reports: end -->\nz\n")
        assert "| three | – |" in text
        assert "- Reproduced: It is so. Yes." in text
        assert "- Open: And so." in text
        assert "old" not in text
    page.write_text("no marks")
    with pytest.raises(ConfigurationError, match="marks"):
        write_into(page, [], tmp_path)
