"""A catalog that fails around a commit: whatever it says, each row lands once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.services.proxy import Fault, Request, answer_after, answer_before, drop_after, drop_before

MODES: dict[str, Callable[[Any], Any]] = {
    "append": lambda sink: sink.append(),
    "upsert": lambda sink: sink.upsert("id"),
    "overwrite": lambda sink: sink.overwrite("v >= 0"),
    "branch": lambda sink: sink.branch("audit"),
}

FAULTS: dict[str, Fault] = {
    "500 after": answer_after(500),
    "503 after": answer_after(503),
    "504 after": answer_after(504),
    "429 after": answer_after(429),
    "500 before": answer_before(500),
    "dropped after": drop_after(),
    "dropped before": drop_before(),
}


def commits(table: str) -> Callable[[Request], bool]:
    """Requests that commit a snapshot to a table."""
    return lambda r: r.path.split("?")[0].endswith(f"/tables/{table}") and b'"add-snapshot"' in r.body


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("mode", MODES)
def test_a_fault_around_a_commit_neither_loses_nor_doubles(scene: Any, mode: str, fault: Fault) -> None:
    pipeline = lambda: (  # noqa: E731
        scene.source("source").incremental(poll="200ms") >> MODES[mode](scene.sink("target").retry(backoff=0.05))
    )
    scene.fill("source", [(i, i) for i in range(100)])
    scene.run(pipeline())
    scene.fill("source", [(i, i + 1000) for i in range(50, 150)])
    rule = scene.proxy.fail(fault, method="POST", times=1, when=commits("target"))
    scene.run(pipeline())
    assert rule.hits == 1
    first, second = [(i, i) for i in range(100)], [(i, i + 1000) for i in range(50, 150)]
    wanted = {
        "append": first + second,
        "branch": first + second,
        "upsert": first[:50] + second,
        "overwrite": second,
    }[mode]
    assert scene.rows("target", "audit" if mode == "branch" else None) == Counter(wanted)
    assert scene.stamps("target") == [0, 1]
