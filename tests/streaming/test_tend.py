"""`.maintain(...)` of a sink, between the writer's own batches."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytestmark = [pytest.mark.promise("maintain"), pytest.mark.short]


def test_small_files_are_compacted_between_batches(world: Any) -> None:
    for i in range(6):
        world.fill("a.s", range(i * 10, i * 10 + 10))
    pipeline = world.source("a.s").incremental() >> world.sink("a.t").maintain(compact=True, expire="1s")
    for i in range(6, 13):
        world.fill("a.s", range(i * 10, i * 10 + 10))
        world.run(pipeline)
    told = [event.message for event in world.events if event.kind == "maintained"]
    assert any(text.startswith("compacted") for text in told), told
    assert not [text for text in told if "failed" in text]
    assert world.ids("a.t") == list(range(130))
    assert len(world.sql("SELECT * FROM local.a.t.files")) < 7
    time.sleep(1.1)
    world.run(pipeline)
    assert world.ids("a.t") == list(range(130))
