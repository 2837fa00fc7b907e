"""Marks each test by its folder, so that `pytest -m unit` needs no marks in the files."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FOLDERS = ("unit", "streaming", "integration", "matrix", "cluster", "outage", "served", "services")

pytest_plugins = ["tests.services.fixtures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(TESTS):
            item.add_marker(pytest.mark.unit)  # the doctests of helios itself
            continue
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in FOLDERS:
            item.add_marker(folder)
