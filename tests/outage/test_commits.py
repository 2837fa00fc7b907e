"""A catalog that fails around a commit: whatever it says, each row lands once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.services.proxy import Fault, Request, answer_after, answer_before, drop_after, drop_before

pytestmark = [pytest.mark.promise("gateways"), pytest.mark.sampled(4)]

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
    "429 after": answer_after(429),  # which Iceberg's client sends again: its own first sending is then in the way
    "500 before": answer_before(500),
    "dropped after": drop_after(),
    "unreadable after": answer_after(200, b"<html>"),  # as of a proxy between
    "incomplete after": answer_after(200, b'{"metadata": {}}'),  # which Java reads as an illegal argument
    "dropped before": drop_before(),
}


@pytest.mark.parametrize("fault", ["503 after", "429 after", "dropped after", "dropped before"])
def test_a_fault_around_the_publication_of_an_audited_batch(scene: Any, fault: str) -> None:
    def copy() -> Any:
        sink = scene.sink("target").audit({"some": "count(*) > 0"}).publish()
        return scene.source("source").incremental(poll="200ms") >> sink

    def publishes(request: Request) -> bool:
        return b"helios.ledger" in request.body and b'"set-snapshot-ref"' in request.body

    scene.fill("source", [(1, 1)])
    scene.run(copy())
    scene.fill("source", [(2, 2)])
    rule = scene.proxy.fail(FAULTS[fault], method="POST", times=1, path="/tables/target", when=publishes)
    scene.run(copy())
    assert rule.hits == 1
    assert scene.rows("target") == Counter([(1, 1), (2, 2)])


def test_a_full_refresh_whose_commit_is_sent_twice(scene: Any) -> None:
    def copy() -> Any:
        return scene.source("source").incremental(poll="200ms") >> scene.sink("target")

    scene.fill("source", [(1, 1)])
    scene.run(copy())
    rule = scene.proxy.fail(answer_after(429), method="POST", times=1, when=commits("target"))
    scene.run(copy(), full_refresh=True)
    assert rule.hits == 1
    assert scene.rows("target") == Counter([(1, 1)])


@pytest.mark.landing
def test_a_conflict_with_another_writer_and_a_second_sending_in_one_commit(scene: Any) -> None:
    """The commit conflicts, is tried again on what is there then, lands, and is sent once more."""

    def copy() -> Any:
        return scene.source("source").incremental(poll="200ms") >> scene.sink("target")

    scene.fill("source", [(1, 1)])
    scene.run(copy())
    scene.fill("source", [(2, 2)])
    other = []

    def first(request: Request) -> bool:
        if commits("target")(request) and not other:
            other.append(scene.fill("target", [(3, 3)]))
            return False
        return commits("target")(request)

    rule = scene.proxy.fail(answer_after(429), method="POST", times=1, when=first)
    scene.run(copy())
    assert rule.hits == 1
    assert scene.rows("target") == Counter([(1, 1), (2, 2), (3, 3)])
    assert scene.stamps("target") == [0, 1]


def commits(table: str) -> Callable[[Request], bool]:
    """Requests that commit a snapshot to a table."""
    return lambda r: r.path.split("?")[0].endswith(f"/tables/{table}") and b'"add-snapshot"' in r.body


QUICK = ("503 after", "429 after", "dropped after", "dropped before")
"""What each mode is tried with, and append with all; the others of other modes are `slow`."""

CASES = [
    pytest.param(
        mode, fault, marks=[] if mode == "append" or fault in QUICK else pytest.mark.slow, id=f"{mode}-{fault}"
    )
    for mode in MODES
    for fault in FAULTS
]


@pytest.mark.parametrize(("mode", "fault"), CASES)
@pytest.mark.cases(landing="append-500 after")
def test_a_fault_around_a_commit_neither_loses_nor_doubles(scene: Any, mode: str, fault: str) -> None:
    def copy() -> Any:
        sink = MODES[mode](scene.sink("target").retry(backoff=0.05))
        return scene.source("source").incremental(poll="200ms") >> sink

    scene.fill("source", [(i, i) for i in range(100)])
    scene.run(copy())
    scene.fill("source", [(i, i + 1000) for i in range(50, 150)])
    rule = scene.proxy.fail(FAULTS[fault], method="POST", times=1, when=commits("target"))
    scene.run(copy())
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
