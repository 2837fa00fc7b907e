"""docs/tutorials/kafka.md, followed as it is written, with a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.conftest import Topics
from tests.suite.pages import ROOT
from tests.suite.tutorial import differences

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("documents"), pytest.mark.timeout(900)]


def test_the_tutorial_of_kafka_prints_what_it_shows(tmp_path: Path, topics: Topics) -> None:
    topics.make(2, "clicks")
    page = ROOT / "docs" / "tutorials" / "kafka.md"
    assert differences(page, tmp_path, {"localhost:9092": topics.broker.servers}) == []
