"""The pytest plugin: the fixture `lake`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helios.testing.lake import Lake


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """An empty lake for a test of pipelines; all tests of a run share one JVM."""
    made = Lake(tmp_path_factory.mktemp("lake"))
    yield made
    made.close()
