"""Services that are away while a pipeline runs, and come back."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

AWAY = 6.0


def copy(scene: Any, mode: str = "append", **retry: Any) -> Any:
    sink = scene.sink("target").retry(**retry)
    sink = sink.upsert("id") if mode == "upsert" else sink
    return scene.source("source").incremental(poll="200ms") >> sink


def numbered(first: int, last: int) -> list[tuple[int, int]]:
    return [(i, i) for i in range(first, last)]


@pytest.mark.parametrize("way", ["stop", "pause"])
def test_a_catalog_that_is_away_is_waited_for(scene: Any, way: str) -> None:
    scene.fill("source", numbered(0, 100))
    run = scene.start(copy(scene))
    scene.wait_for("batch")
    getattr(scene.server, way)()
    try:
        t = time.monotonic()
        time.sleep(AWAY)
    finally:
        (scene.server.start if way == "stop" else scene.server.resume)()
    print("back", time.monotonic() - t)
    scene.fill("source", numbered(100, 200))
    t = time.monotonic()
    n = len(scene.events)
    scene.wait_for("batch", 60, after=n)
    print("first batch after", time.monotonic() - t)
    run.stop()
    assert run.await_termination(60)
    for e in scene.events: print(e)
    assert scene.rows("target") == Counter(numbered(0, 200))
    assert scene.stamps("target") == [0, 1]
