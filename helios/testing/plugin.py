"""The pytest plugin with the fixture `lake`. Every run of pytest loads it, so only the fixture imports Helios."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helios.testing.lake import Lake


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """An empty lake for a test of pipelines; all tests of a run share one JVM."""
    from helios.testing.lake import Lake

    lake = Lake(tmp_path_factory.mktemp("lake"))
    yield lake
    lake.close()
