"""What is tested is what is written: compiled modules are there, none older than its source."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import headgate

PACKAGE = Path(headgate.__file__).parent


def test_the_hot_path_is_compiled_where_there_is_a_compiler() -> None:
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    assert headgate.is_compiled()


def test_no_compiled_module_is_older_than_its_source() -> None:
    for types in PACKAGE.rglob("*.pxd"):
        built = list(types.parent.glob(f"{types.stem}.*.so"))
        newest = max(types.stat().st_mtime, types.with_suffix(".py").stat().st_mtime)
        assert all(path.stat().st_mtime >= newest for path in built), f"make install: {types}"
