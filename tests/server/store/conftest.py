from __future__ import annotations

import pytest

from .broker import KINDS, Opens


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """The name of a way to store, for child processes."""
    name: str = request.param
    return name


@pytest.fixture
def open_store(kind: str) -> Opens:
    """Each way to store keeps the same promises, so each runs every test."""
    return KINDS[kind]
