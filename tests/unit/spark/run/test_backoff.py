"""How long a run waits for a service that is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios import Catalog, Iceberg, Kafka
from helios.spark.run import backoff
from helios.spark.run.backoff import Outage, unavailable_service


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(backoff.time, "monotonic", lambda: now[0])
    return now


def pauses(one: Outage, clock: list[float], ways: int = 1) -> list[float]:
    found = []
    while (pause := one.pause(ways)) is not None:
        found.append(pause)
        clock[0] += pause
    return found


def test_pauses_double_up_to_a_bound_and_the_last_try_is_at_the_end(clock: list[float]) -> None:
    found = pauses(Outage(60.0), clock)
    assert found == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0, 4.5]
    assert sum(found) == 60.0


def test_other_replicas_are_asked_at_once(clock: list[float]) -> None:
    found = pauses(Outage(4.0), clock, ways=3)
    assert found == [0.0, 0.0, 0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.5, 0.0, 0.0]


def test_each_replica_is_asked_before_a_run_gives_up(clock: list[float]) -> None:
    """Also where the first one takes longer than the limit to fail."""
    one = Outage(3.0)
    assert one.pause(3) == 0.0
    clock[0] += 5.0
    assert (one.pause(3), one.pause(3)) == (0.0, None)


def test_each_outage_has_all_of_the_time(clock: list[float]) -> None:
    one = Outage(3.0)
    assert one.end() is None
    assert one.pause() == 0.5
    clock[0] += 2.0
    assert one.end() == 2.0
    assert not one.ongoing
    clock[0] += 1000.0
    assert one.pause() == 0.5


def test_no_outage_is_waited_for_when_none_was_asked_for(clock: list[float]) -> None:
    assert Outage(0.0).pause() is None


@pytest.mark.parametrize(
    ("reason", "service"),
    [
        ("TimeoutException: Timed out waiting for a node assignment. Call: describeTopics", "Kafka at b:9092"),
        ("TimeoutException: Cannot fetch record for offset 5 in 120000 milliseconds", "Kafka at b:9092"),
        ("SocketTimeoutException: Read timed out", "a catalog or its storage"),
    ],
)
def test_brokers_that_are_away_are_named(reason: str, service: str, tmp_path: Path) -> None:
    sink = Iceberg.sink("a.t", catalog=Catalog.local(path=tmp_path))
    assert unavailable_service(reason, (Kafka.source("t").servers("b:9092") >> sink).plan()) == service
